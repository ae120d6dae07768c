"""Attention straight from the blocks by FlashAttention as torch ships it, where torch offers its paged form.

Owns the translation of a step into ``torch.nn.attention.varlen.varlen_attn``.  Ignorant of models.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch

NEEDED = frozenset({"scale", "window_size", "enable_gqa", "seqused_k", "block_table"})


def paged_function() -> Callable[..., Any] | None:
    """The function, if the installed torch has one that takes a block table."""
    try:
        function: Callable[..., Any] = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    except (ImportError, AttributeError):
        return None
    return function if set(inspect.signature(function).parameters) >= NEEDED else None


class VarlenAttention:
    """Implements :class:`AttentionKernel`, but for soft-caps."""

    name = "varlen"

    def __init__(self, function: Callable[..., Any], has_key_begins: bool) -> None:
        """``has_key_begins``: FlashAttention 2 wants to be told where keys begin, though blocks say it; 3 refuses."""
        self._function = function
        self._has_key_begins = has_key_begins
        self._batch: StepBatch | None = None
        self._key_begins: Tensor | None = None  # [rows + 1] int32

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
        """``[T, heads, head dim]``: each new token attends to its row's context up to itself."""
        assert softcap is None, "FlashAttention in torch has no soft-cap: the choice of kernels knows"
        attended: Tensor = self._function(
            query.contiguous(),
            cache.keys,
            cache.values,
            batch.query_begins,
            self._begins(batch),
            batch.max_query_len,
            batch.max_context_len,
            scale=scale,
            window_size=(-1 if window is None else window - 1, 0),  # tokens seen to the left, beside oneself
            enable_gqa=query.shape[1] != cache.keys.shape[2],
            seqused_k=batch.context_lens,
            block_table=batch.block_table,
        )
        return attended

    def _begins(self, batch: StepBatch) -> Tensor | None:
        if self._has_key_begins and batch is not self._batch:
            self._batch = batch
            self._key_begins = torch.nn.functional.pad(batch.context_lens.cumsum(0), (1, 0)).to(torch.int32)
        return self._key_begins
