"""Which tokens a sequence holds, and how often each was generated, kept up to date a token at a time.

Owns the counts behind the penalties.  Ignorant of logits.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from everystep.types import Sequence


class History:
    """The distinct tokens of one sequence.  Counting anew each step would cost a batch of 64 long rows milliseconds."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._num_seen = 0
        self._slots: dict[int, int] = {}  # token id → index into the arrays
        self._ids = np.empty(64, np.intp)
        self._output_counts = np.zeros(64, np.float32)

    def update(self, sequence: Sequence) -> None:
        """Take in the tokens since the last call; ids outside the vocabulary have no logit and are left out."""
        for index in range(self._num_seen, sequence.num_tokens):
            token_id = sequence.token_ids[index]
            if 0 <= token_id < self._vocab_size:
                slot = self._slot(token_id)  # first: it may move the arrays
                self._output_counts[slot] += index >= sequence.num_prompt_tokens
        self._num_seen = sequence.num_tokens

    @property
    def token_ids(self) -> NDArray[np.intp]:
        """``[distinct]``: each token of prompt and output once."""
        return self._ids[: len(self._slots)]

    @property
    def output_counts(self) -> NDArray[np.float32]:
        """``[distinct]``: how often each was generated; 0 for those of the prompt alone."""
        return self._output_counts[: len(self._slots)]

    def _slot(self, token_id: int) -> int:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self._output_counts = np.concatenate([self._output_counts, np.zeros_like(self._output_counts)])
        self._ids[slot] = token_id
        return slot


class Histories:
    """A history for each living sequence that needs one; it goes when its sequence goes."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._by_sequence: WeakKeyDictionary[Sequence, History] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._by_sequence)

    def of(self, sequence: Sequence) -> History:
        """The sequence's history, up to date."""
        history = self._by_sequence.get(sequence)
        if history is None:
            history = self._by_sequence[sequence] = History(self._vocab_size)
        history.update(sequence)
        return history
