"""Logits seen as blocks of the vocabulary, so that most questions touch only a few of them.

Owns the layout, each block's maximum, and the search for a row's largest logits.  Ignorant of probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK_WIDTHS = (256, 128, 64)  # the first that divides the vocabulary; wide ones cost less to reduce
NEVER = np.float32(-np.inf)


def block_width(vocab_size: int) -> int:
    """One that divides the vocabulary if any does: else rows are copied, with -inf at their ends."""
    return next((width for width in BLOCK_WIDTHS if vocab_size % width == 0), BLOCK_WIDTHS[0])


@dataclass(frozen=True, slots=True)
class Blocks:
    """``values`` ``[rows, blocks, width]`` and their ``maxima`` ``[rows, blocks]``; token = block · width + offset.

    A maximum is NaN where its block holds a NaN.  ``values`` may share memory with the logits it was made of.
    """

    values: NDArray[np.float32]
    maxima: NDArray[np.float32]
    vocab_size: int

    @classmethod
    def of(cls, logits: NDArray[np.float32], indices: NDArray[np.intp]) -> Blocks:
        """The rows ``indices`` of ``logits`` ``[rows, vocab]``; copied only where a view can't do."""
        vocab_size = logits.shape[1]
        width = block_width(vocab_size)
        num_blocks = -(-vocab_size // width)
        is_view = vocab_size % width == 0 and _is_run(indices) and logits.flags.c_contiguous
        rows = logits[indices[0] : indices[-1] + 1] if is_view else _copied(logits, indices, num_blocks * width)
        values = rows.reshape(len(indices), num_blocks, width)
        # Row by row: a row stays in the second-level cache.
        maxima = np.stack([row.max(axis=1) for row in values])  # [rows, blocks]
        return cls(values, maxima, vocab_size)

    @property
    def width(self) -> int:
        return int(self.values.shape[2])

    @property
    def num_blocks(self) -> int:
        return int(self.values.shape[1])

    def row_maxima(self) -> NDArray[np.float32]:
        """``[rows]``; NaN where the row holds a NaN."""
        tops: NDArray[np.float32] = self.maxima.max(axis=1)
        return tops

    def select(self, rows: NDArray[np.intp]) -> Blocks:
        """Those rows alone; the same object if they are all."""
        if len(rows) == len(self.values):
            return self
        return Blocks(self.values[rows], self.maxima[rows], self.vocab_size)

    def kth_largest(self, rows: NDArray[np.intp], ks: NDArray[np.intp]) -> NDArray[np.float32]:
        """``[len(rows)]``: the ``ks``-th largest logit of each row, 1 ≤ k ≤ vocabulary."""
        found = np.empty(len(rows), np.float32)
        is_few = ks <= self.num_blocks
        for i in np.flatnonzero(~is_few):
            row = self.values[rows[i]].reshape(-1)  # [blocks · width]
            found[i] = np.partition(row, len(row) - ks[i])[len(row) - ks[i]]
        if is_few.any():
            leaders = self.leaders(rows[is_few], ks[is_few])
            found[is_few] = leaders.values[leaders.starts + ks[is_few] - 1]
        return found

    def leaders(self, rows: NDArray[np.intp], ks: NDArray[np.intp]) -> Leaders:
        """At least the ``ks`` largest logits of each row.

        The k-th largest of the block maxima has k logits at or above it, so that all of the k largest are in blocks
        whose maximum is at or above it.  Where k exceeds the number of blocks every logit is a candidate.
        """
        maxima = self.maxima[rows]  # [rows, blocks]
        ranked = np.sort(maxima, axis=1)[:, ::-1]
        bounds = np.where(
            ks <= self.num_blocks, ranked[np.arange(len(rows)), np.minimum(ks, self.num_blocks) - 1], NEVER
        )
        hit_rows, hit_blocks = np.nonzero(maxima >= bounds[:, None])
        values = self.values[rows[hit_rows], hit_blocks]  # [hits, width]
        # NumPy's two-dimensional nonzero takes many times as long as the flat one.
        hits, offsets = np.divmod(np.flatnonzero(values >= bounds[hit_rows, None]), self.width)
        owners, candidates = hit_rows[hits], values[hits, offsets]
        order = np.lexsort((-candidates, owners))  # stable: among equals the lower token id is first
        counts = np.bincount(owners, minlength=len(rows))
        token_ids = hit_blocks[hits] * self.width + offsets
        return Leaders(candidates[order], token_ids[order], np.cumsum(counts) - counts)


@dataclass(frozen=True, slots=True)
class Leaders:
    """Rows' largest logits, row after row, each largest first; row i begins at ``starts[i]``."""

    values: NDArray[np.float32]
    token_ids: NDArray[np.intp]
    starts: NDArray[np.intp]


def _is_run(indices: NDArray[np.intp]) -> bool:
    return bool(len(indices)) and int(indices[-1] - indices[0]) == len(indices) - 1


def _copied(logits: NDArray[np.float32], indices: NDArray[np.intp], width: int) -> NDArray[np.float32]:
    rows = np.empty((len(indices), width), np.float32)  # [rows, blocks · width]
    rows[:, logits.shape[1] :] = NEVER
    for row, index in zip(rows, indices, strict=True):
        row[: logits.shape[1]] = logits[index]
    return rows
