"""Attention over gathered keys and values, by torch's scaled_dot_product_attention: works on every device.

Owns decode steps, which it computes without a look at any tensor, so that a CUDA graph can hold them.  Steps with
longer rows go to :class:`SdpaAttention`.  Ignorant of models.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from everystep.runner.torch_paged.sdpa_attention import SdpaAttention
from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch

MAX_GATHERED_TOKENS = 2**18  # of rows x context in one piece: bounds the copies of keys and values


class GatheredAttention:
    """Implements :class:`AttentionKernel`."""

    name = "gathered"

    def __init__(self) -> None:
        self._longer = SdpaAttention()
        self._batch: StepBatch | None = None
        self._slots = torch.empty(0)  # [rows, keys] int64 of the batch: where its contexts lie
        self._masks: dict[int | None, Tensor] = {}  # window → [rows, 1, 1, keys] bool

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
        if batch.max_query_len > 1:
            return self._longer.attend(query, cache, batch, scale=scale, window=window, softcap=softcap)
        slots, mask = self._seen(batch, cache, window)
        size = max(1, MAX_GATHERED_TOKENS // slots.shape[1])
        parts = [
            _attend(query[at : at + size], cache, slots[at : at + size], mask[at : at + size], scale, softcap)
            for at in range(0, len(query), size)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _seen(self, batch: StepBatch, cache: LayerCache, window: int | None) -> tuple[Tensor, Tensor]:
        """Computed by a step's first layer for all; in a graph that is part of it, as each capture has a new batch.

        What lies beyond a context may be anything, a NaN of an earlier owner too, which no mask takes away: such places
        are read in the block that nobody owns.
        """
        num_blocks, block_size = cache.keys.shape[:2]
        positions = torch.arange(batch.block_table.shape[1] * block_size, device=batch.block_table.device)
        if batch is not self._batch:
            blocks = batch.block_table.long()[:, :, None]  # [rows, blocks of a row, 1]
            offsets = torch.arange(block_size, device=blocks.device)
            slots = (blocks * block_size + offsets).flatten(1)  # [rows, keys]
            nowhere = (num_blocks - 1) * block_size
            self._slots = torch.where(positions < batch.context_lens[:, None], slots, nowhere)
            self._batch, self._masks = batch, {}
        if window not in self._masks:
            is_seen = positions < batch.context_lens[:, None]
            if window is not None:
                is_seen = is_seen & (positions >= batch.context_lens[:, None] - window)
            self._masks[window] = is_seen[:, None, None]
        return self._slots, self._masks[window]


def _attend(
    query: Tensor, cache: LayerCache, slots: Tensor, mask: Tensor, scale: float, softcap: float | None
) -> Tensor:
    """``[rows, heads, value dim]``.  Heads that share a KV head attend as if they were its tokens: no copy of keys."""
    num_rows, num_heads, dim = query.shape
    keys, values = _gather(cache.keys, slots), _gather(cache.values, slots)
    queries = query.reshape(num_rows, keys.shape[1], -1, dim)  # [rows, KV heads, share, dim]
    if softcap is None:
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
    else:
        scores = (queries @ keys.transpose(-1, -2)).float() * scale  # [rows, KV heads, share, keys]
        scores = softcap * (scores / softcap).tanh()
        mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1).to(values.dtype) @ values
    return mixed.reshape(num_rows, num_heads, -1)


def _gather(cache: Tensor, slots: Tensor) -> Tensor:
    """``[rows, KV heads, keys, dim]`` of the tokens in ``slots`` ``[rows, keys]``."""
    tokens = cache.view(-1, *cache.shape[2:]).index_select(0, slots.reshape(-1))
    return tokens.view(*slots.shape, *cache.shape[2:]).transpose(1, 2)
