"""Unnormalised probabilities of logits in blocks: e^((logit - row maximum) / temperature), in [0, 1].

Owns what a row's weights are.  Ignorant of what their sums are compared with.  A row's numbers depend on that row
alone, to the last bit, whatever rows are computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks
from everystep.runner.sampling.exp_sums import ExpSums

MIN_TEMPERATURE = 1e-30  # its inverse is still a float32; far below any two logits' distance


@dataclass(frozen=True, slots=True)
class Softmax:
    """``blocks`` at the temperatures whose inverses are ``scales`` ``[rows]``; ``tops`` ``[rows]`` are finite."""

    blocks: Blocks
    tops: NDArray[np.float32]
    scales: NDArray[np.float32]
    exp_sums: ExpSums

    @classmethod
    def of(cls, blocks: Blocks, temperatures: NDArray[np.float64], exp_sums: ExpSums) -> Softmax:
        scales = (1.0 / np.maximum(temperatures, MIN_TEMPERATURE)).astype(np.float32)
        return cls(blocks, blocks.row_maxima(), scales, exp_sums)

    def masses(self) -> NDArray[np.float64]:
        """``[rows, blocks]``: each block's sum of weights."""
        num_rows, num_blocks, width = self.blocks.values.shape
        values = self.blocks.values.reshape(-1, width)  # [rows · blocks, width]
        sums = self.exp_sums.whole(values, np.repeat(self.tops, num_blocks), np.repeat(self.scales, num_blocks))
        return sums.reshape(num_rows, num_blocks).astype(np.float64)

    def masses_above(self, rows: NDArray[np.intp], pivots: NDArray[np.float32]) -> NDArray[np.float64]:
        """``[len(rows), blocks]``: each block's sum over the logits strictly above its row's pivot.

        Looks only into blocks whose maximum is above the pivot.
        """
        masses = np.zeros((len(rows), self.blocks.num_blocks))
        hits, hit_blocks = np.nonzero(self.blocks.maxima[rows] > pivots[:, None])
        if len(hits):
            owners = rows[hits]
            values = self.blocks.values[owners, hit_blocks]  # [hits, width]
            tops, scales = self.tops[owners], self.scales[owners]
            masses[hits, hit_blocks] = self.exp_sums.above(values, tops, scales, pivots[hits])
        return masses

    def weights_above(
        self, rows: NDArray[np.intp], blocks: NDArray[np.intp], pivots: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Logits of one block of each row and their weights, 0 at or below the pivot: ``[len(rows), width]`` both."""
        values = self.blocks.values[rows, blocks]
        with np.errstate(over="ignore", under="ignore"):  # a tiny temperature: -inf, and its weight 0, are right
            weights = np.exp((values - self.tops[rows, None]) * self.scales[rows, None])
        weights *= values > pivots[:, None]
        return values, weights
