"""Attention by torch's own scaled_dot_product_attention over gathered keys and values: the CPU's kernel.

Owns the gathering and the grouping of rows.  Ignorant of models.  It also runs where a GPU has no paged kernel.
"""

from __future__ import annotations

from torch import Tensor, nn

from everystep.runner.torch_paged.row_groups import RowGroup, group_rows
from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch


class SdpaAttention:
    """Implements :class:`AttentionKernel`."""

    name = "sdpa"

    def __init__(self) -> None:
        self._batch: StepBatch | None = None
        self._groups: dict[tuple[int | None, bool], list[RowGroup]] = {}

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
        num_tokens, num_heads, _ = query.shape
        attended = query.new_empty(num_tokens, num_heads, cache.values.shape[-1])
        for group in self._grouped(batch, cache, window, softcap is not None):
            keys, values = _gather(cache.keys, group.key_slots), _gather(cache.values, group.key_slots)
            queries = query[group.tokens].transpose(1, 2)  # [rows, heads, tokens, dim]
            if softcap is None:
                result = _sdpa(queries, keys, values, group, scale)
            else:
                result = _softcapped(queries, keys, values, group, scale, softcap)
            attended[group.tokens] = result.transpose(1, 2)
        return attended

    def _grouped(self, batch: StepBatch, cache: LayerCache, window: int | None, is_tiled: bool) -> list[RowGroup]:
        """All layers of a step that see equally far share one grouping."""
        if batch is not self._batch:
            self._batch, self._groups = batch, {}
        key = (window, is_tiled)
        if key not in self._groups:
            num_blocks, block_size = cache.keys.shape[:2]
            padding_slot = (num_blocks - 1) * block_size  # in the block that nobody owns
            self._groups[key] = group_rows(batch, block_size, padding_slot, window, is_tiled, cache.keys.dtype)
        return self._groups[key]


def _gather(cache: Tensor, slots: Tensor) -> Tensor:
    """``[rows, KV heads, keys, dim]`` of the tokens in ``slots`` ``[rows, keys]``."""
    tokens = cache.view(-1, *cache.shape[2:]).index_select(0, slots.view(-1))
    return tokens.view(*slots.shape, *cache.shape[2:]).transpose(1, 2)


def _sdpa(queries: Tensor, keys: Tensor, values: Tensor, group: RowGroup, scale: float) -> Tensor:
    """``[rows, heads, tokens, value dim]``."""
    num_rows, num_heads, num_tokens, _ = queries.shape
    num_kv_heads = keys.shape[1]
    if num_tokens == 1:  # the heads that share a KV head attend as if they were its tokens: no copy of the keys
        queries = queries.reshape(num_rows, num_kv_heads, num_heads // num_kv_heads, -1)
    result = nn.functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=group.mask,
        is_causal=group.is_causal,
        scale=scale,
        enable_gqa=queries.shape[1] != num_kv_heads,
    )
    return result.reshape(num_rows, num_heads, num_tokens, -1)


def _softcapped(queries: Tensor, keys: Tensor, values: Tensor, group: RowGroup, scale: float, softcap: float) -> Tensor:
    """``[rows, heads, tokens, value dim]``, step by step: SDPA has no place for the cap."""
    num_rows, num_heads, num_tokens, _ = queries.shape
    num_kv_heads = keys.shape[1]
    shared = (num_rows, num_kv_heads, num_heads // num_kv_heads, num_tokens, -1)
    scores = queries.reshape(shared) @ keys.unsqueeze(2).transpose(-1, -2) * scale  # [rows, KV, share, tokens, keys]
    scores = softcap * (scores / softcap).tanh()
    if group.mask is not None:
        scores = scores + group.mask.unsqueeze(2)
    weights = scores.float().softmax(-1).to(values.dtype)
    return (weights @ values.unsqueeze(2)).reshape(num_rows, num_heads, num_tokens, -1)
