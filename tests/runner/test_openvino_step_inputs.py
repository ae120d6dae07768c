"""Plans packed into arrays, worked out by hand."""

from __future__ import annotations

from everystep.runner.step_inputs import StepInputs, pack, pack_invariant, split
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence


def row(token_ids: list[int], start: int, num_new_tokens: int, block_ids: list[int]) -> Row:
    sequence = Sequence(
        sequence_id="s",
        request_id="r",
        policy="p",
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        params=SamplingParams(),
        seed=0,
        eos_token_ids=frozenset(),
        block_ids=block_ids,
    )
    return Row(sequence, 0, start, num_new_tokens)


def as_lists(inputs: StepInputs) -> dict[str, object]:
    return {name: array.tolist() for name, array in inputs.named()}


DECODE = row([10, 11, 12, 13, 14], 4, 1, [7, 3, 9])  # its third block waits for position 8
PREFILL = row([20, 21, 22], 0, 3, [5])
CHUNK = row([30, 31, 32, 33, 34, 35, 36], 2, 3, [1, 8])  # stops short of its last token


def test_rows_lie_one_after_another() -> None:
    assert as_lists(pack([DECODE, PREFILL, CHUNK], block_size=4)) == {
        "input_ids": [14, 20, 21, 22, 32, 33, 34],
        "position_ids": [4, 0, 1, 2, 2, 3, 4],
        "past_lens": [4, 0, 2],
        "subsequence_begins": [0, 1, 4, 7],
        "block_indices": [7, 3, 5, 1, 8],
        "block_indices_begins": [0, 2, 3, 5],
        "max_context_len": 5,
        "sample_idx": [0, 3],
    }


def test_where_nobody_samples_the_head_still_gets_a_token() -> None:
    assert as_lists(pack([CHUNK], 4))["sample_idx"] == [0]
    assert as_lists(pack_invariant([CHUNK], 4, 1))["sample_idx"] == [0]


def test_an_invariant_pass_takes_each_token_as_a_row_before_an_empty_one() -> None:
    assert as_lists(pack_invariant([DECODE, CHUNK], block_size=4, min_tokens=1)) == {
        "input_ids": [14, 32, 33, 34],
        "position_ids": [4, 2, 3, 4],
        "past_lens": [4, 2, 3, 4, 0],
        "subsequence_begins": [0, 1, 2, 3, 4, 4],
        "block_indices": [7, 3, 1, 1, 1, 8],
        "block_indices_begins": [0, 2, 3, 4, 6, 6],
        "max_context_len": 5,
        "sample_idx": [0],
    }


def test_a_lone_token_comes_twice_where_a_pass_needs_two() -> None:
    inputs = as_lists(pack_invariant([DECODE], block_size=4, min_tokens=2))
    assert inputs["input_ids"] == [14, 14]
    assert inputs["position_ids"] == [4, 4]
    assert inputs["block_indices"] == [7, 3, 7, 3]
    assert inputs["block_indices_begins"] == [0, 2, 4, 4]
    assert inputs["sample_idx"] == [0, 0]


def test_a_lone_sampled_token_meets_the_head_twice_where_a_pass_needs_two() -> None:
    assert as_lists(pack_invariant([PREFILL], 4, 2))["sample_idx"] == [2, 2]


def test_a_step_is_split_at_the_bound_in_the_order_of_its_tokens() -> None:
    groups = [
        [(r.sequence.token_ids[0], r.start, r.end, r.samples) for r in g] for g in split([DECODE, PREFILL, CHUNK], 3)
    ]
    assert groups == [
        [(10, 4, 5, True), (20, 0, 2, False)],
        [(20, 2, 3, True), (30, 2, 4, False)],
        [(30, 4, 5, False)],
    ]


def test_a_step_that_fills_its_passes_leaves_no_empty_one() -> None:
    assert [sum(r.num_new_tokens for r in group) for group in split([PREFILL, CHUNK], 3)] == [3, 3]
