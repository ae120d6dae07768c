"""The SDPA kernel against a plain loop over tokens, and the packing that it reads."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence

pytestmark = pytest.mark.torch

BLOCK_SIZE = 4
NUM_BLOCKS = 40
KEY_DIM, VALUE_DIM = 8, 6


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    import torch

    return torch


def sequence(name: str, num_tokens: int, blocks: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=1)
    token_ids = [100 * len(blocks) + i for i in range(num_tokens)]
    return Sequence(name, name, "p", token_ids, num_tokens, params, 0, frozenset(), block_ids=blocks)


# Rows as (first new position, new tokens): decode, chunks, whole prompts, equal and unequal lengths.
STEPS = {
    "one decoding row": [(9, 1)],
    "decoding rows of many lengths": [(9, 1), (0, 1), (35, 1), (10, 1), (34, 1), (3, 1)],
    "whole prompts": [(0, 7), (0, 7), (0, 13)],
    "chunks": [(5, 6), (11, 6), (3, 2), (17, 9)],
    "all at once": [(5, 6), (9, 1), (0, 7), (30, 1), (0, 7), (11, 6), (0, 1)],
}
SIZES = {"equal heads": (4, 4), "grouped heads": (4, 2), "one KV head": (3, 1)}


def packed(rows: list[tuple[int, int]], rng: np.random.Generator) -> Any:
    from everystep.runner.torch_paged.step_packing import pack

    free = rng.permutation(NUM_BLOCKS).tolist()
    made = []
    for i, (start, num_new) in enumerate(rows):
        blocks = [free.pop() for _ in range(-(-(start + num_new) // BLOCK_SIZE))]
        made.append(Row(sequence(f"s{i}", start + num_new, blocks), i, start, num_new))
    return made, pack(made, BLOCK_SIZE)


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("heads", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("window", [None, 1, 5])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_the_kernel_gives_what_a_plain_loop_over_tokens_gives(
    torch: ModuleType, rows: list[tuple[int, int]], heads: tuple[int, int], window: int | None, softcap: float | None
) -> None:
    from everystep.runner.torch_paged.sdpa_attention import SdpaAttention
    from everystep.runner.torch_paged.step_batch import LayerCache

    rng = np.random.default_rng(5)
    num_heads, num_kv_heads = heads
    made, arrays = packed(rows, rng)
    keys = rng.normal(size=(NUM_BLOCKS + 1, BLOCK_SIZE, num_kv_heads, KEY_DIM)).astype(np.float32)
    values = rng.normal(size=(NUM_BLOCKS + 1, BLOCK_SIZE, num_kv_heads, VALUE_DIM)).astype(np.float32)
    query = rng.normal(size=(sum(n for _, n in rows), num_heads, KEY_DIM)).astype(np.float32)
    attended = SdpaAttention().attend(
        torch.from_numpy(query),
        LayerCache(torch.from_numpy(keys), torch.from_numpy(values)),
        arrays.to(torch.device("cpu")),
        scale=0.3,
        window=window,
        softcap=softcap,
    )
    expected = by_loop(made, query, keys, values, window, softcap)
    np.testing.assert_allclose(attended.numpy(), expected, atol=2e-6, rtol=0)


def by_loop(
    made: list[Row], query: Any, keys: Any, values: Any, window: int | None, softcap: float | None
) -> np.ndarray[Any, Any]:
    """Float64, a token and a head at a time, no tensor library."""
    attended, token = [], 0
    share = query.shape[1] // keys.shape[2]
    for row in made:
        for position in range(row.start, row.end):
            first = 0 if window is None else max(0, position - window + 1)
            places = [(row.sequence.block_ids[p // BLOCK_SIZE], p % BLOCK_SIZE) for p in range(first, position + 1)]
            heads = []
            for head in range(query.shape[1]):
                kv_head = head // share
                scores = np.array([query[token, head].astype(float) @ keys[b, o, kv_head] for b, o in places]) * 0.3
                if softcap is not None:
                    scores = softcap * np.tanh(scores / softcap)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                heads.append(sum(w * values[b, o, kv_head] for w, (b, o) in zip(weights, places, strict=True)))
            attended.append(heads)
            token += 1
    return np.array(attended)


def test_a_long_masked_chunk_is_cut_into_tiles_that_give_the_same(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everystep.runner.torch_paged import row_groups

    batch = packed([(20, 30), (0, 50)], np.random.default_rng(1))[1].to(torch.device("cpu"))
    monkeypatch.setattr(row_groups, "MAX_TILE_TOKENS", 8)
    groups = row_groups.group_rows(batch, BLOCK_SIZE, 0, 16, False, torch.float32)
    tokens = torch.cat([group.tokens.flatten() for group in groups])
    assert sorted(tokens.tolist()) == list(range(80))
    assert max(group.tokens.shape[1] for group in groups) == 8
    assert max(group.key_slots.shape[1] for group in groups) <= 16 + 8


def test_what_another_row_left_behind_a_context_can_not_spoil_it(torch: ModuleType) -> None:
    """Rows of a group are padded to one length: what stands in the unused rest of a block must not be read."""
    from everystep.runner.torch_paged.sdpa_attention import SdpaAttention
    from everystep.runner.torch_paged.step_batch import LayerCache

    rng = np.random.default_rng(2)
    made, arrays = packed([(8, 1), (11, 1), (9, 3), (10, 3)], rng)
    keys = np.full((NUM_BLOCKS + 1, BLOCK_SIZE, 2, KEY_DIM), np.nan, np.float32)
    keys[NUM_BLOCKS] = 0
    for row in made:
        for p in range(row.end):
            keys[row.sequence.block_ids[p // BLOCK_SIZE], p % BLOCK_SIZE] = rng.normal(size=(2, KEY_DIM))
    cache = LayerCache(torch.from_numpy(keys), torch.from_numpy(keys.copy()))
    query = torch.from_numpy(rng.normal(size=(8, 4, KEY_DIM)).astype(np.float32))
    batch = arrays.to(torch.device("cpu"))
    for softcap in (None, 2.0):
        attended = SdpaAttention().attend(query, cache, batch, scale=1.0, window=None, softcap=softcap)
        assert torch.isfinite(attended).all()


def test_a_plan_is_packed_as_one_writes_it_by_hand() -> None:
    _, arrays = packed([(0, 3), (5, 1)], np.random.default_rng(0))
    free = np.random.default_rng(0).permutation(NUM_BLOCKS).tolist()
    first, second = free.pop(), [free.pop(), free.pop()]
    assert arrays.input_ids.tolist() == [100, 101, 102, 205]
    assert arrays.position_ids.tolist() == [0, 1, 2, 5]
    assert arrays.slots.tolist() == [4 * first, 4 * first + 1, 4 * first + 2, 4 * second[1] + 1]
    assert arrays.query_begins.tolist() == [0, 3, 4]
    assert arrays.context_lens.tolist() == [3, 6]
    assert arrays.block_table.tolist() == [[first, 0], second]
    assert arrays.sample_idx.tolist() == [2, 3]


def test_a_row_that_stops_short_of_its_last_token_draws_none() -> None:
    from everystep.runner.torch_paged.step_packing import pack

    text = sequence("s", 9, [3, 1, 2])
    arrays = pack([Row(text, 0, 0, 8)], BLOCK_SIZE)
    assert arrays.sample_idx.tolist() == []
    assert arrays.block_table.tolist() == [[3, 1]]
