"""Log-probabilities to report, computed on the device of the logits.

Owns the computation in torch and its reading on the host.  What is reported is what
:mod:`everystep.runner.sampling.logprobs` reports: the model's own distribution, before edits and filters.
"""

from __future__ import annotations

from collections.abc import Sequence as Sized
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everystep.types import SampledToken, TokenLogprob

WORD = 32
LOW = 2**WORD - 1
MAGNITUDE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of the rows that asked, on the device or copied from it."""

    drawn: Tensor  # [rows] f64
    top_ids: Tensor  # [rows, most] int64, likeliest first, among equals the lower id first
    tops: Tensor  # [rows, most] f64

    @classmethod
    def of(cls, logits: Tensor, token_ids: Tensor, most: int) -> Logprobs:
        """``logits`` ``[rows, vocab]`` f32, ``token_ids`` ``[rows]``; ``most`` is the longest list asked for."""
        peaks = logits.amax(dim=1)  # [rows]
        sums = (logits - peaks[:, None]).exp().sum(dim=1, dtype=torch.float64)
        normalisers = peaks.double() + sums.log()  # [rows]
        drawn = logits.gather(1, token_ids[:, None]).squeeze(1).double() - normalisers
        top_ids = _leaders(logits, min(most, logits.shape[1]))
        return cls(drawn, top_ids, logits.gather(1, top_ids).double() - normalisers[:, None])

    def to_host(self) -> Logprobs:
        """The copy is complete once the device is."""
        return Logprobs(*(part.to("cpu", non_blocking=True) for part in (self.drawn, self.top_ids, self.tops)))

    def tokens(self, token_ids: NDArray[np.int64], num_top: Sized[int]) -> list[SampledToken | None]:
        """``None`` where the logits aren't finite.  Tokens of probability 0 aren't listed."""
        found: list[SampledToken | None] = []
        for token_id, logprob, ids, tops, count in zip(
            token_ids.tolist(), self.drawn.tolist(), self.top_ids.tolist(), self.tops.tolist(), num_top, strict=True
        ):
            pairs = zip(ids[:count], tops[:count], strict=True)
            listed = tuple(TokenLogprob(i, top) for i, top in pairs if top > -np.inf)
            found.append(SampledToken(token_id, logprob, listed) if np.isfinite(logprob) else None)
        return found


def _leaders(logits: Tensor, most: int) -> Tensor:
    """``[rows, most]`` int64: ids of the largest logits.

    By unique keys, since torch.topk leaves the order of equals open: a float's bits, made to sort as a signed integer,
    in the high word, and the complement of its id in the low one.
    """
    bits = (logits + 0.0).contiguous().view(torch.int32).long()  # + 0.0 makes -0.0 equal to 0.0
    ordered = torch.where(bits < 0, bits ^ MAGNITUDE, bits)
    ids = torch.arange(logits.shape[1], device=logits.device)
    keys = (ordered << WORD) | (LOW - ids)
    return LOW - (keys.topk(most, dim=1).values & LOW)
