"""Ids to text for byte-level BPE: tokens are bytes, and their joined bytes are UTF-8.

Owns the tables of tokens' bytes and texts, and the incremental UTF-8 decoder over them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from itertools import islice

from everystep.text.byte_level import bytes_of_token

MAX_HELD_BYTES = 3  # a character of UTF-8 has four at most


class _BytesById(dict[int, bytes]):
    """Filled on demand; threads may fill an entry twice with the same."""

    def __init__(self, token_of: Callable[[int], str | None]) -> None:
        super().__init__()
        self._token_of = token_of

    def __missing__(self, token_id: int) -> bytes:
        token = self._token_of(token_id)
        self[token_id] = value = b"" if token is None else bytes_of_token(token)
        return value


class _TextById(dict[int, str | None]):
    """``None`` where the token's bytes aren't whole characters."""

    def __init__(self, bytes_by_id: _BytesById) -> None:
        super().__init__()
        self._bytes_by_id = bytes_by_id

    def __missing__(self, token_id: int) -> str | None:
        try:
            value: str | None = self._bytes_by_id[token_id].decode()
        except UnicodeDecodeError:
            value = None
        self[token_id] = value
        return value


class ByteLevelDecoding:
    """Tokens are bytes, and their joined bytes are UTF-8."""

    def __init__(self, token_of: Callable[[int], str | None]) -> None:
        self._bytes = _BytesById(token_of)
        self._texts = _TextById(self._bytes)

    def stream(self, hidden_ids: frozenset[int]) -> ByteLevelStream:
        return ByteLevelStream(self._bytes, self._texts, hidden_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]


class ByteLevelStream:
    """An incremental UTF-8 decoder over tokens' bytes.

    Invalid bytes become U+FFFD as in the whole decode: both replace maximal subparts (Unicode 3.9, D93b).
    """

    def __init__(self, bytes_by_id: _BytesById, text_by_id: _TextById, hidden_ids: frozenset[int]) -> None:
        self._bytes = bytes_by_id
        self._texts = text_by_id
        self._hidden_ids = hidden_ids
        self._held = b""

    def prime(self, token_ids: Sequence[int]) -> None:
        """What is incomplete shows in the last bytes alone: whatever begins a character begins it after any byte."""
        shown = (i for i in reversed(token_ids) if i not in self._hidden_ids and self._bytes[i])
        for token_id in reversed(list(islice(shown, MAX_HELD_BYTES))):
            self.push(token_id)

    def push(self, token_id: int) -> str:
        if token_id in self._hidden_ids:
            return ""
        if not self._held:
            text = self._texts[token_id]
            if text is not None:
                return text
        data = self._held + self._bytes[token_id]
        text, num_read = codecs.utf_8_decode(data, "replace", False)
        self._held = data[num_read:]
        return text

    def flush(self) -> str:
        text = self._held.decode(errors="replace")
        self._held = b""
        return text
