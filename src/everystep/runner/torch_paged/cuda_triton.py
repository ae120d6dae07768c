"""Attention straight from the blocks by our own Triton kernel, which comes with every torch for GPUs.

Owns tile sizes and the launch.  Ignorant of models.  Its work is that of each row's context, whatever a graph has room
for.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch

DECODE_QUERIES = 16  # the least that a tensor core takes
PREFILL_QUERIES = 64
WIDE_HEAD = 128  # wider ones get smaller tiles, else a program's memory runs out


class TritonAttention:
    """Implements :class:`AttentionKernel`."""

    name = "triton"

    @staticmethod
    def is_offered() -> bool:
        return importlib.util.find_spec("triton") is not None

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
        """``[T, heads, value dim]``: each new token attends to its row's context up to itself."""
        from everystep.runner.torch_paged.cuda_triton_kernel import attend_rows

        query = query if query.stride(-1) == 1 else query.contiguous()
        keys, values = cache.keys, cache.values
        out = query.new_empty(*query.shape[:2], values.shape[-1])
        sizes = _sizes(query, cache, batch.max_query_len)
        num_tiles = -(-batch.max_query_len // (sizes["BLOCK_M"] // sizes["GROUP_PAD"]))
        attend_rows[(num_tiles, len(batch.context_lens), keys.shape[2])](
            query,
            keys,
            values,
            out,
            batch.block_table,
            batch.query_begins,
            batch.context_lens,
            batch.block_table.stride(0),
            scale,
            1.0 if softcap is None else softcap,
            0 if window is None else window,
            *query.stride()[:2],
            *keys.stride()[:3],
            *values.stride()[:3],
            *out.stride()[:2],
            **sizes,
            HAS_WINDOW=window is not None,
            HAS_SOFTCAP=softcap is not None,
        )
        return out


def _sizes(query: Tensor, cache: LayerCache, max_query_len: int) -> dict[str, Any]:
    """The kernel's compile-time numbers.  Powers of two, at least 16 where a tensor core takes them."""
    block_size, num_kv_heads, key_dim = cache.keys.shape[1:]
    value_dim = cache.values.shape[-1]
    group = query.shape[1] // num_kv_heads
    group_pad = _power_of_two(group)
    is_wide = max(key_dim, value_dim) > WIDE_HEAD or query.dtype == torch.float32
    most = DECODE_QUERIES if max_query_len == 1 or is_wide else PREFILL_QUERIES
    return {
        "GROUP": group,
        "GROUP_PAD": group_pad,
        "KEY_DIM": key_dim,
        "KEY_PAD": max(16, _power_of_two(key_dim)),
        "VALUE_DIM": value_dim,
        "VALUE_PAD": max(16, _power_of_two(value_dim)),
        "BLOCK_SIZE": block_size,
        "BLOCK_M": max(most, group_pad),
        "TILE": 32 if is_wide else 64,
    }


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
