"""Attention straight from the blocks by FlashInfer, where it is installed: soft-caps and windows included.

Owns the planning, once a step for each kind of layer.  Ignorant of models.  Its planning waits for the device, so no
graph can hold it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch

WORKSPACE_BYTES = 128 * 2**20


class FlashInferAttention:
    """Implements :class:`AttentionKernel`."""

    name = "flashinfer"

    def __init__(self, device: torch.device) -> None:
        self._library: Any = importlib.import_module("flashinfer")
        self._device = device
        self._batch: StepBatch | None = None
        self._wrappers: dict[tuple[float, int | None, float | None], Any] = {}
        self._planned: set[tuple[float, int | None, float | None]] = set()

    @staticmethod
    def is_offered() -> bool:
        return importlib.util.find_spec("flashinfer") is not None

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
        if batch is not self._batch:
            self._batch, self._planned = batch, set()
        kind = (scale, window, softcap)
        if kind not in self._wrappers:
            workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
            self._wrappers[kind] = self._library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        wrapper = self._wrappers[kind]
        if kind not in self._planned:
            self._planned.add(kind)
            _plan(wrapper, query, cache, batch, scale, window, softcap)
        attended: Tensor = wrapper.run(query.contiguous(), (cache.keys, cache.values))
        return attended


def _plan(
    wrapper: Any,
    query: Tensor,
    cache: LayerCache,
    batch: StepBatch,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> None:
    block_size, num_kv_heads, head_dim = cache.keys.shape[1:]
    num_blocks = (batch.context_lens + block_size - 1) // block_size  # [rows]
    columns = torch.arange(batch.block_table.shape[1], device=num_blocks.device)
    wrapper.plan(
        batch.query_begins,
        torch.nn.functional.pad(num_blocks.cumsum(0), (1, 0)).to(torch.int32),
        batch.block_table[columns < num_blocks[:, None]],  # row after row
        (batch.context_lens - 1) % block_size + 1,
        query.shape[1],
        num_kv_heads,
        head_dim,
        block_size,
        causal=True,
        sm_scale=scale,
        window_left=-1 if window is None else window - 1,
        logits_soft_cap=softcap,
        q_data_type=query.dtype,
        kv_data_type=cache.keys.dtype,
    )
