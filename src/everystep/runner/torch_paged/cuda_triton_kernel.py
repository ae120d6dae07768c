"""Paged attention as one Triton kernel: any block size, any grouping of heads, windows and soft-caps.

Owns the kernel's arithmetic.  Ignorant of models and of when it runs.  Imported only where Triton is installed.

One program computes the attention of up to ``BLOCK_M / GROUP_PAD`` new tokens of one row with the query heads that
share one KV head: the online softmax of FlashAttention (Dao, 2023) over tiles of keys, found through the block table.
"""
# mypy: ignore-errors
# ruff: noqa: N803

import triton
import triton.language as tl

BELOW_ALL = tl.constexpr(-1.0e30)  # a finite -inf: differences of two stay numbers


@triton.jit
def _tile(cache, table_row, positions, is_real, block_stride, token_stride, dims, DIM, BLOCK_SIZE):
    """``[keys, padded dim]`` of one KV head's keys or values at ``positions``; zeros beyond them."""
    blocks = tl.load(table_row + positions // BLOCK_SIZE, mask=is_real, other=0).to(tl.int64)
    starts = blocks * block_stride + (positions % BLOCK_SIZE) * token_stride
    return tl.load(cache + starts[:, None] + dims[None, :], mask=is_real[:, None] & (dims < DIM)[None, :], other=0.0)


@triton.jit
def _scores(q, k, scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """``[queries, keys]``.  tanh(x) is 2 sigmoid(2x) - 1."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if HAS_SOFTCAP:
        scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
    return scores


@triton.jit
def _mixed_in(top, total, mixed, scores, is_seen, v):
    """One tile more: the largest score so far, the sum of weights, the sum of weighted values."""
    scores = tl.where(is_seen, scores, BELOW_ALL)
    new_top = tl.maximum(top, tl.max(scores, 1))
    weights = tl.where(is_seen, tl.exp(scores - new_top[:, None]), 0.0)
    fade = tl.exp(top - new_top)
    mixed = mixed * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_top, total * fade + tl.sum(weights, 1), mixed


@triton.jit(do_not_specialize=["table", "begins", "contexts", "table_width", "window"])
def attend_rows(
    q, keys, values, out, table, begins, contexts, table_width, scale, softcap, window,
    q_token, q_head, k_block, k_token, k_head, v_block, v_token, v_head, out_token, out_head,
    GROUP: tl.constexpr, GROUP_PAD: tl.constexpr, KEY_DIM: tl.constexpr, KEY_PAD: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr,
    TILE: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Grid: (tiles of new tokens, rows, KV heads)."""
    row, kv_head = tl.program_id(1), tl.program_id(2)
    begin, context = tl.load(begins + row), tl.load(contexts + row)
    num_new = tl.load(begins + row + 1) - begin
    first = tl.program_id(0) * (BLOCK_M // GROUP_PAD)  # of this program's new tokens
    if first >= num_new:
        return
    lanes = tl.arange(0, BLOCK_M)
    offsets, heads = first + lanes // GROUP_PAD, lanes % GROUP_PAD
    is_query = (offsets < num_new) & (heads < GROUP)
    q_dims, v_dims = tl.arange(0, KEY_PAD), tl.arange(0, VALUE_PAD)
    tokens, heads = (begin + offsets).to(tl.int64), kv_head * GROUP + heads
    starts = (tokens * q_token + heads * q_head)[:, None]
    query = tl.load(q + starts + q_dims[None, :], mask=is_query[:, None] & (q_dims < KEY_DIM)[None, :], other=0.0)
    at = context - num_new + offsets  # [BLOCK_M] positions
    end = tl.minimum(context, context - num_new + first + BLOCK_M // GROUP_PAD)
    start = tl.maximum(0, context - num_new + first - window + 1) // TILE * TILE if HAS_WINDOW else 0
    top = tl.full([BLOCK_M], BELOW_ALL, tl.float32)
    total, mixed = tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, VALUE_PAD], tl.float32)
    blocks, keys, values = table + row.to(tl.int64) * table_width, keys + kv_head * k_head, values + kv_head * v_head
    for tile in range(start, end, TILE):
        where = tile + tl.arange(0, TILE)
        k = _tile(keys, blocks, where, where < end, k_block, k_token, q_dims, KEY_DIM, BLOCK_SIZE)
        v = _tile(values, blocks, where, where < end, v_block, v_token, v_dims, VALUE_DIM, BLOCK_SIZE)
        is_seen = (where[None, :] <= at[:, None]) & (where < end)[None, :]
        if HAS_WINDOW:
            is_seen = is_seen & (where[None, :] > at[:, None] - window)
        scores = _scores(query, k, scale, softcap, HAS_SOFTCAP)
        top, total, mixed = _mixed_in(top, total, mixed, scores, is_seen, v)
    mixed = (mixed / tl.where(total > 0, total, 1.0)[:, None]).to(out.dtype.element_ty)
    ends = (tokens * out_token + heads * out_head)[:, None] + v_dims[None, :]
    tl.store(out + ends, mixed, mask=is_query[:, None] & (v_dims < VALUE_DIM)[None, :])
