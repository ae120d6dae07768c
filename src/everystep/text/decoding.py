"""Ids to text, token by token: what a ``tokenizer.json``'s decoder does, as a stream.

Owns the choice of the kind of decoding.  A whole decode is the same stream, run to its end, so the two can't differ.
Ignorant of prompts, stop strings and threads (a stream has one owner; a decoding is shared).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from everystep.text.byte_level_decoding import ByteLevelDecoding
from everystep.text.piece_decoding import PieceDecoding


class Stream(Protocol):
    """One text as it grows.  All that it ever gives, joined, is the whole decode of its ids."""

    def prime(self, token_ids: Sequence[int]) -> None:
        """Set out behind ``token_ids`` without giving their text; what they leave incomplete comes later."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str:
        """The end: what was held becomes U+FFFD."""


class Decoding(Protocol):
    """How a tokenizer's ids become text."""

    def stream(self, hidden_ids: frozenset[int]) -> Stream:
        """A new stream that shows nothing of ``hidden_ids``."""

    def token_bytes(self, token_id: int) -> bytes:
        """The token's bytes inside a text; none for an id without a token."""


def read_decoding(decoder_json: str | None, token_of: Callable[[int], str | None]) -> Decoding:
    """The decoding that ``decoder_json`` (of a ``tokenizer.json``) describes.

    Raises :class:`everystep.errors.ModelError` for a decoder that isn't known, by name.
    """
    steps = _steps(json.loads(decoder_json)) if decoder_json else []
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return ByteLevelDecoding(token_of)
    return PieceDecoding(steps, token_of, is_joined_by_space=decoder_json is None)


def _steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _steps(part)]
