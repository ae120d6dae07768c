"""One random token for each row, exactly from its distribution after min_p, top_k and top_p, drawn on the device.

Owns the draw in torch.  The filters' meaning and the proof that redrawing is exact are those of
:mod:`everystep.runner.sampling.draw`, whose order of operations and block widths this follows, so that both draw the
same token from the same logits up to rounding.  Ignorant of penalties, logprobs and requests.

No step waits for the host: a draw makes as many attempts as will nearly always do, and says which rows need more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from everystep.runner.sampling.blocks import block_width

NEVER = float("-inf")
SMALLEST = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True)
class DeviceRecipe:
    """How to draw, one entry a row in each tensor; ``max_top_k`` is the largest of ``top_ks``, 0 where all are off."""

    scales: Tensor  # [rows] f32: 1 / temperature
    distances: Tensor  # [rows] f64: temperature * log(min_p), -inf where off
    top_ks: Tensor  # [rows] int64, 0 where off
    top_ps: Tensor  # [rows] f64
    max_top_k: int


@dataclass(frozen=True, slots=True)
class Draw:
    """What stands after some attempts.  Rows with ``is_open`` need another, above their ``pivots``."""

    values: Tensor  # [rows, blocks, width] f32 logits
    weights: Tensor  # [rows, blocks, width] f32 in [0, 1]
    limits: Tensor  # [rows] f64
    top_ps: Tensor  # [rows] f64
    pivots: Tensor  # [rows] f32, what is at or below is out
    masses: Tensor  # [rows, blocks] f64: each block's sum of weights above the pivot
    tokens: Tensor  # [rows] int64
    is_open: Tensor  # [rows] bool

    @classmethod
    def begin(cls, logits: Tensor, recipe: DeviceRecipe) -> Draw:
        """``logits`` ``[rows, vocab]`` f32; a row whose largest isn't finite gets a token of no meaning."""
        num_rows, vocab_size = logits.shape
        tops = logits.amax(dim=1)  # [rows], NaN where the row holds a NaN
        width = block_width(vocab_size)
        padding = -vocab_size % width
        padded = torch.nn.functional.pad(logits, (0, padding), value=NEVER) if padding else logits
        values = padded.view(num_rows, -1, width)
        weights = ((values - tops[:, None, None]) * recipe.scales[:, None, None]).exp()
        pivots = _pivots(logits, tops, recipe)
        masses = _masses_above(values, weights, pivots)
        limits = (recipe.top_ps * masses.sum(dim=1)).clamp(min=SMALLEST)
        nothing = torch.zeros(num_rows, dtype=torch.int64, device=logits.device)
        return cls(values, weights, limits, recipe.top_ps, pivots, masses, nothing, torch.isfinite(tops))

    def attempt(self, chances: Tensor) -> Draw:
        """One draw for each open row with its ``chances`` ``[2, rows]`` f64; the others stay as they are."""
        blocks = _invert_cdf(self.masses, chances[0])  # [rows]
        index = blocks[:, None, None].expand(-1, 1, self.values.shape[2])
        values = self.values.gather(1, index).squeeze(1)  # [rows, width]
        kept = self.weights.gather(1, index).squeeze(1) * (values > self.pivots[:, None])
        offsets = _invert_cdf(kept.double(), chances[1])
        drawn = values.gather(1, offsets[:, None]).squeeze(1)  # [rows]
        above = _masses_above(self.values, self.weights, drawn)  # [rows, blocks]
        is_refused = self.is_open & (self.top_ps < 1.0) & (above.sum(dim=1) >= self.limits)
        tokens = torch.where(self.is_open, blocks * self.values.shape[2] + offsets, self.tokens)
        pivots = torch.where(is_refused, drawn, self.pivots)
        masses = torch.where(is_refused[:, None], above, self.masses)
        return Draw(self.values, self.weights, self.limits, self.top_ps, pivots, masses, tokens, is_refused)


def _pivots(logits: Tensor, tops: Tensor, recipe: DeviceRecipe) -> Tensor:
    """``[rows]``: the largest float below each row's least kept logit, after min_p and top_k."""
    floors = (tops.double() + recipe.distances).float()
    if recipe.max_top_k:
        most = min(recipe.max_top_k, logits.shape[1])
        largest = logits.topk(most, dim=1).values  # [rows, most]
        ranks = recipe.top_ks.clamp(1, most) - 1
        kth = largest.gather(1, ranks[:, None]).squeeze(1)
        is_ranked = (recipe.top_ks > 0) & (recipe.top_ks < logits.shape[1])
        floors = torch.where(is_ranked, torch.maximum(floors, kth), floors)
    return torch.nextafter(floors, torch.full_like(floors, NEVER))


def _masses_above(values: Tensor, weights: Tensor, pivots: Tensor) -> Tensor:
    """``[rows, blocks]`` f64: each block's sum of weights over the logits strictly above its row's pivot."""
    return (weights * (values > pivots[:, None, None])).sum(dim=2).double()


def _invert_cdf(weights: Tensor, chances: Tensor) -> Tensor:
    """``[rows]``: the first index whose cumulated weight exceeds the chance's share; never one of weight 0.

    A GPU adds up in a tree, so that a cumulated sum may fall by a rounding from one index to the next: hence the look
    at the weights themselves, and the last one that weighs where rounding leaves none.
    """
    cumulated = weights.cumsum(dim=1)  # [rows, n] f64
    is_heavy = weights > 0
    is_past = (cumulated > (chances * cumulated[:, -1])[:, None]) & is_heavy
    first = is_past.byte().argmax(dim=1)
    last_heavy = weights.shape[1] - 1 - is_heavy.flip(1).byte().argmax(dim=1)
    return torch.where(is_past.any(dim=1), first, last_heavy)
