"""Does an attention kernel, on this very device, say what plain arithmetic says?

Owns the trial's rows and the plain arithmetic, in float64 on the CPU and one row at a time.  Ignorant of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from everystep.runner.torch_paged.cuda_needs import AttentionNeeds
from everystep.runner.torch_paged.device_inputs import HostStep
from everystep.runner.torch_paged.step_batch import AttentionKernel, LayerCache
from everystep.runner.torch_paged.step_packing import PackedRows

NUM_BLOCKS = 12  # and one that nobody owns
SCATTERED = np.random.default_rng(5).permutation(NUM_BLOCKS)


def worst_difference(kernel: AttentionKernel, needs: AttentionNeeds, block_size: int, device: torch.device) -> float:
    """Over decode steps and mixed ones, contexts up to two blocks, every window and soft-cap; a NaN stays one."""
    rng = np.random.default_rng(6)
    worst = 0.0
    for lengths in ([1, 1, 1], [1, 7, block_size + 3, 1]):
        contexts = [1, 9, 2 * block_size - 1, block_size][: len(lengths)]
        packed = _packed(lengths, [max(pair) for pair in zip(lengths, contexts, strict=True)], block_size)
        for scale, window, softcap in _kinds(needs):
            query, cache = _random(rng, needs, len(packed.input_ids), block_size, device)
            batch = HostStep.of(packed, device).to(device)
            with torch.inference_mode():
                found = kernel.attend(query, cache, batch, scale=scale, window=window, softcap=softcap)
            expected = _plain(query, cache, packed, scale, window, softcap)
            difference = float((found.double().cpu() - expected).abs().max())
            worst = difference if np.isnan(difference) else max(worst, difference)
    return worst


def _kinds(needs: AttentionNeeds) -> Iterator[tuple[float, int | None, float | None]]:
    for window in needs.windows:
        for softcap in needs.softcaps:
            yield needs.key_dim**-0.5, window, softcap
    yield 0.3, None, next(iter(needs.softcaps))


def _packed(lengths: list[int], contexts: list[int], block_size: int) -> PackedRows:
    """Rows over blocks that lie anywhere; unused places of the table hold 0."""
    begins = np.cumsum([0, *lengths])
    table = np.zeros((len(lengths), 3), np.int32)
    for row in range(len(lengths)):
        num_blocks = -(-contexts[row] // block_size)
        table[row, :num_blocks] = SCATTERED[3 * row : 3 * row + num_blocks]
    starts = np.array(contexts) - lengths
    positions = np.concatenate([np.arange(s, e) for s, e in zip(starts, contexts, strict=True)])
    blocks = table[np.repeat(np.arange(len(lengths)), lengths), positions // block_size].astype(np.int64)
    return PackedRows(
        input_ids=np.zeros(len(positions), np.int64),
        position_ids=positions,
        slots=blocks * block_size + positions % block_size,
        query_begins=begins.astype(np.int32),
        context_lens=np.array(contexts, np.int32),
        block_table=table,
        sample_idx=(begins[1:] - 1).astype(np.int64),
    )


def _random(
    rng: np.random.Generator, needs: AttentionNeeds, num_tokens: int, block_size: int, device: torch.device
) -> tuple[Tensor, LayerCache]:
    """Normal numbers everywhere, so that a key read in the wrong place shows."""

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape)).to(device, needs.dtype)

    blocks = (NUM_BLOCKS + 1, block_size, needs.num_kv_heads)
    query = normal(num_tokens, needs.num_heads, needs.key_dim)
    return query, LayerCache(normal(*blocks, needs.key_dim), normal(*blocks, needs.value_dim))


def _plain(
    query: Tensor, cache: LayerCache, packed: PackedRows, scale: float, window: int | None, softcap: float | None
) -> Tensor:
    """``[T, heads, value dim]`` f64 on the CPU."""
    block_size, num_kv_heads = cache.keys.shape[1:3]
    queries, keys, values = (tensor.double().cpu() for tensor in (query, cache.keys, cache.values))
    share = queries.shape[1] // num_kv_heads
    rows = np.repeat(np.arange(len(packed.context_lens)), np.diff(packed.query_begins))
    results = []
    for token, (row, position) in enumerate(zip(rows, packed.position_ids.tolist(), strict=True)):
        first = 0 if window is None else max(0, position - window + 1)
        seen = np.arange(first, position + 1)
        blocks = torch.from_numpy(packed.block_table[row, seen // block_size].astype(np.int64))
        offsets = torch.from_numpy(seen % block_size)
        k = keys[blocks, offsets].repeat_interleave(share, dim=1)  # [seen, heads, dim]
        v = values[blocks, offsets].repeat_interleave(share, dim=1)
        scores = torch.einsum("hd,shd->hs", queries[token], k) * scale
        scores = scores if softcap is None else softcap * (scores / softcap).tanh()
        results.append(torch.einsum("hs,shd->hd", scores.softmax(-1), v))
    return torch.stack(results)
