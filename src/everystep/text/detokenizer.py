"""Incremental detokenising: each token gives the text that is now certain.

Owns where a text sets out: behind its prompt, whose own text it doesn't give.
"""

from __future__ import annotations

from collections.abc import Sequence

from everystep.text.tokenizer import Tokenizer


class Detokenizer:
    """Push ids, take text; ``flush`` once at the end.  Not for several threads.

    All that it ever gives, joined, is ``tokenizer.decode`` of its ids; behind a prompt, what ``decode`` of prompt and
    ids has beyond the prompt's text (a word's leading space, the rest of a character that the prompt began).
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> None:
        self._stream = tokenizer.stream(skip_special=skip_special)
        self._stream.prime(prompt_ids)
        self.push = self._stream.push  # the hot path: no call between
        self.flush = self._stream.flush
