"""What a model's layers ask of an attention kernel, all together.

Owns the message between loading and the choice of a kernel.  Ignorant of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from everystep.runner.torch_paged.step_batch import AttentionKernel, LayerCache, StepBatch


@dataclass(frozen=True, slots=True)
class AttentionNeeds:
    """Shapes are the largest of all layers: a kernel that does those does the others."""

    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    key_dim: int  # of a head
    value_dim: int
    windows: frozenset[int | None]
    softcaps: frozenset[float | None]


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a kernel by a layer, as seen by :class:`NotingKernel`."""

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    softcap: float | None


class NotingKernel:
    """Hands every call on, and remembers what was asked."""

    name = "noting"

    def __init__(self, kernel: AttentionKernel) -> None:
        self._kernel = kernel
        self.calls: set[LayerCall] = set()

    def attend(
        self,
        query: Tensor,
        cache: LayerCache,
        batch: StepBatch,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        shapes = (query.shape[1], cache.keys.shape[2], query.shape[2], cache.values.shape[3])
        self.calls.add(LayerCall(*shapes, window, softcap))
        return self._kernel.attend(query, cache, batch, scale=scale, window=window, softcap=softcap)


def needs_of(calls: Iterable[LayerCall], dtype: torch.dtype) -> AttentionNeeds:
    every = list(calls)
    widest = max(every, key=lambda call: (max(call.key_dim, call.value_dim), call.num_heads))
    return AttentionNeeds(
        dtype=dtype,
        num_heads=widest.num_heads,
        num_kv_heads=widest.num_kv_heads,
        key_dim=widest.key_dim,
        value_dim=widest.value_dim,
        windows=frozenset(call.window for call in every),
        softcaps=frozenset(call.softcap for call in every),
    )
