"""Unnormalised probabilities of logits in blocks: e^((logit - row maximum) / temperature), in [0, 1].

Owns the exponentials, which are nearly all the cost of a draw.  Ignorant of what a sum is compared with.  A row's
numbers depend on that row alone, to the last bit, whatever rows are computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks

MIN_TEMPERATURE = 1e-30  # its inverse is still a float32; far below any two logits' distance


@dataclass(frozen=True, slots=True)
class Softmax:
    """``blocks`` at the temperatures whose inverses are ``scales`` ``[rows]``; ``tops`` ``[rows]`` are finite."""

    blocks: Blocks
    tops: NDArray[np.float32]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, blocks: Blocks, temperatures: NDArray[np.float64]) -> Softmax:
        scales = (1.0 / np.maximum(temperatures, MIN_TEMPERATURE)).astype(np.float32)
        return cls(blocks, blocks.row_maxima(), scales)

    def masses(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """``[len(rows), blocks]``: each block's sum of weights."""
        sums = np.empty((len(rows), self.blocks.num_blocks), np.float32)
        scratch = np.empty(self.blocks.values.shape[1:], np.float32)  # [blocks, width], stays in the cache
        for i, row in enumerate(rows):
            _weigh(self.blocks.values[row], self.tops[row], self.scales[row], scratch)
            np.add.reduce(scratch, axis=1, out=sums[i])
        return sums.astype(np.float64)

    def masses_above(self, rows: NDArray[np.intp], pivots: NDArray[np.float32]) -> NDArray[np.float64]:
        """``[len(rows), blocks]``: the same over logits strictly above each row's pivot.

        Looks only into blocks whose maximum is above the pivot.
        """
        masses = np.zeros((len(rows), self.blocks.num_blocks))
        hit_rows, hit_blocks = np.nonzero(self.blocks.maxima[rows] > pivots[:, None])
        _, weights = self.weights_above(rows[hit_rows], hit_blocks, pivots[hit_rows])
        masses[hit_rows, hit_blocks] = weights.sum(axis=1)
        return masses

    def weights_above(
        self, rows: NDArray[np.intp], blocks: NDArray[np.intp], pivots: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits of one block for each entry and their weights, 0 at or below the pivot: ``[entries, width]`` both."""
        values = self.blocks.values[rows, blocks]
        weights = np.empty_like(values)
        _weigh(values, self.tops[rows, None], self.scales[rows, None], weights)
        weights *= values > pivots[:, None]
        return values, weights


def _weigh(
    values: NDArray[np.float32],
    tops: NDArray[np.float32] | np.float32,
    scales: NDArray[np.float32] | np.float32,
    out: NDArray[np.float32],
) -> None:
    with np.errstate(over="ignore", under="ignore"):  # a tiny temperature: -inf, and its weight 0, are right
        np.subtract(values, tops, out=out)
        np.multiply(out, scales, out=out)
        np.exp(out, out=out)
