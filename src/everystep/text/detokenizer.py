"""Incremental detokenising: each token gives the text that is now certain.

Owns what is held back: an incomplete character, or a run of fallback bytes.  All that a detokeniser ever gives, joined,
is the whole decode of its ids, for any ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from everystep.text.tokenizer import Tokenizer

NUM_CONTEXT_IDS = 6  # prompt ids that a window starts with: enough for the first word's leading space


class Detokenizer(Protocol):
    """Push ids, take text; ``flush`` once at the end."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


def detokenizer(tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> Detokenizer:
    """The kind that fits the tokenizer.  ``prompt_ids`` is what the text continues."""
    return BytesDetokenizer(tokenizer) if tokenizer.is_byte_level else WindowDetokenizer(tokenizer, prompt_ids)


class BytesDetokenizer:
    """For byte-level BPE: tokens are bytes, and an incremental UTF-8 decoder knows what is incomplete.

    Invalid bytes become U+FFFD as the whole decode has them: both substitute maximal subparts (Unicode 3.9, D93b).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        if self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For other decoders: decode a short window with and without the newest tokens; the difference is news.

    The window starts behind text already given, so a decoder that looks at the text's begin (stripping a leading space)
    sees the same begin both times.  A run of fallback bytes decodes as a whole, so it is held until it ends.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt_ids[-NUM_CONTEXT_IDS:])
        while self._window and tokenizer.is_fallback_byte(self._window[0]):
            del self._window[0]  # a part of a character at the border would decode to garbage on both sides
        self._num_given = len(self._window)  # ids of the window whose text is out already

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        if self._tokenizer.is_fallback_byte(token_id) or self._tokenizer.is_special(token_id):
            return ""
        return self._give()

    def flush(self) -> str:
        return self._give()

    def _give(self) -> str:
        given = self._tokenizer.decode(self._window[: self._num_given])
        text = self._tokenizer.decode(self._window)[len(given) :]
        if text:  # keep what was just given as the next window's begin
            self._window = self._window[self._num_given :]
            self._num_given = len(self._window)
        return text
