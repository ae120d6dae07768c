"""Ids to text for SentencePiece and its kin: each token is a piece of text, or a byte of a character without a piece.

Owns the tokens' texts at the begin of a text and later, the gathering of bytes to characters, and the leading space.

Where a run of fallback bytes isn't valid UTF-8, its valid characters are kept and each other byte becomes U+FFFD, as
SentencePiece itself does.  The ``tokenizers`` library turns the whole run into U+FFFD then, so that nothing of a run
could be shown before it ends; a paragraph of Burmese is one run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from everystep.errors import ModelError
from everystep.text.backend_part import build_part

REPLACEMENT = "\ufffd"
PER_PIECE_STEPS = frozenset({"Replace", "Metaspace", "WordPiece", "Strip"})
FALLBACK_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Piece(NamedTuple):
    """A token's text at the begin of a text and later in one; or its byte."""

    first: str
    later: str
    byte: bytes | None


class _PieceById(dict[int, Piece | None]):
    def __init__(self, make: Callable[[int], Piece | None]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, token_id: int) -> Piece | None:
        self[token_id] = piece = self._make(token_id)
        return piece


class PieceDecoding:
    """SentencePiece and its kin: each token is a piece of text, ``<0xE2>`` may be a byte, the begin loses a space."""

    def __init__(
        self, steps: Sequence[dict[str, Any]], token_of: Callable[[int], str | None], *, is_joined_by_space: bool
    ) -> None:
        num_per_piece = next((i for i, step in enumerate(steps) if not _is_per_piece(step)), len(steps))
        per_piece, rest = list(steps[:num_per_piece]), list(steps[num_per_piece:])
        self._token_of = token_of
        self._backend = build_part("decoder", {"type": "Sequence", "decoders": per_piece}) if per_piece else None
        self._glue = " " if is_joined_by_space else ""
        self._has_bytes = _take(rest, "ByteFallback")
        is_fused = _take(rest, "Fuse")
        strip = rest.pop(0) if is_fused and rest and _is_left_strip(rest[0]) else None
        if rest:
            raise ModelError(f"the tokenizer's decoder step {rest[0]['type']!r} isn't supported at its place")
        self._strip = (strip["content"], strip["start"]) if strip else ("", 0)
        self._pieces = _PieceById(self._make_piece)

    def stream(self, hidden_ids: frozenset[int]) -> PieceStream:
        return PieceStream(self._pieces, hidden_ids, *self._strip)

    def token_bytes(self, token_id: int) -> bytes:
        piece = self._pieces[token_id]
        if piece is None:
            return b""
        return piece.byte if piece.byte is not None else piece.later.encode()

    def _make_piece(self, token_id: int) -> Piece | None:
        token = self._token_of(token_id)
        if token is None:
            return None
        if self._has_bytes and (byte := FALLBACK_BYTE.fullmatch(token)):
            return Piece("", "", bytes.fromhex(byte[1]))
        if self._backend is None:
            return Piece(token, self._glue + token, None)
        # Behind an empty piece a token isn't the first, and the empty piece itself shows nothing.
        return Piece(self._backend.decode([token]), self._backend.decode(["", token]), None)


class PieceStream:
    """Pieces joined; bytes gathered to characters; ``num_to_strip`` leading ``strip_char`` taken away."""

    def __init__(
        self, pieces: _PieceById, hidden_ids: frozenset[int], strip_char: str = "", num_to_strip: int = 0
    ) -> None:
        self._pieces = pieces
        self._hidden_ids = hidden_ids
        self._strip_char = strip_char
        self._num_to_strip = num_to_strip
        self._is_first = True
        self._held = b""

    def prime(self, token_ids: Sequence[int]) -> None:
        """The state is whether the text has begun, and the bytes at its end: the middle needs no reading."""
        num_read = 0
        while num_read < len(token_ids) and (self._is_first or self._num_to_strip):
            self.push(token_ids[num_read])
            num_read += 1
        begin = len(token_ids)
        while begin > num_read and self._may_hold(token_ids[begin - 1]):
            begin -= 1
        if begin > num_read:
            self._held = b""  # a piece between ended what the head left
        for token_id in token_ids[begin:]:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        piece = self._pieces[token_id]
        if piece is None or token_id in self._hidden_ids:
            return ""
        is_first, self._is_first = self._is_first, False
        if piece.byte is not None:
            text = self._push_byte(piece.byte)
        else:
            text = self._release() + (piece.first if is_first else piece.later)
        return self._stripped(text) if self._num_to_strip else text

    def flush(self) -> str:
        return self._release()

    def _may_hold(self, token_id: int) -> bool:
        piece = self._pieces[token_id]
        return piece is None or token_id in self._hidden_ids or piece.byte is not None

    def _push_byte(self, byte: bytes) -> str:
        self._held += byte
        text = ""
        while self._held:
            try:
                text, self._held = text + self._held.decode(), b""
            except UnicodeDecodeError as error:
                if error.reason == "unexpected end of data":
                    break
                text += REPLACEMENT * error.end  # what is invalid begins at 0: valid characters left at once
                self._held = self._held[error.end :]
        return text

    def _release(self) -> str:
        text = REPLACEMENT * len(self._held)
        self._held = b""
        return text

    def _stripped(self, text: str) -> str:
        num_leading = len(text) - len(text.lstrip(self._strip_char))
        cut = min(num_leading, self._num_to_strip)
        is_all_leading = num_leading == len(text)
        self._num_to_strip = self._num_to_strip - cut if is_all_leading else 0
        return text[cut:]


def _is_left_strip(step: dict[str, Any]) -> bool:
    return step["type"] == "Strip" and bool(step["stop"] == 0)


def _is_per_piece(step: dict[str, Any]) -> bool:
    return step["type"] in PER_PIECE_STEPS and (step["type"] != "Strip" or _is_left_strip(step))


def _take(steps: list[dict[str, Any]], kind: str) -> bool:
    """Whether ``kind`` is the next step; if so it is taken off."""
    is_next = bool(steps) and steps[0]["type"] == kind
    if is_next:
        del steps[0]
    return is_next
