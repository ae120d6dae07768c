"""The fake runner draws from its cache as a real one does, so scheduling faults show as wrong tokens."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from everystep.runner.fake import FakeRunner, generate, next_token
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence, StepPlan


def make_sequence(prompt: list[int], block_ids: list[int], name: str = "s", **params: object) -> Sequence:
    return Sequence(
        sequence_id=name,
        request_id="r",
        policy="p",
        token_ids=list(prompt),
        num_prompt_tokens=len(prompt),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        seed=0,
        eos_token_ids=frozenset(),
        block_ids=block_ids,
    )


def runner_of_two_token_blocks(**options: object) -> FakeRunner:
    runner = FakeRunner(block_size=2, vocab_size=1000, **options)  # type: ignore[arg-type]
    runner.allocate(8)
    return runner


def run_row(runner: FakeRunner, sequence: Sequence, start: int, num_new_tokens: int) -> int | None:
    result = runner.run(StepPlan("p", (Row(sequence, 0, start, num_new_tokens),)))
    token = result.tokens.get(sequence.sequence_id)
    return token.token_id if token else None


def plain_next_token(token_ids: list[int], vocab_size: int) -> int:
    """The model written down once more: a running 64-bit state per token, all states hashed."""
    states, state = b"", 0
    for token_id in token_ids:
        state = (state * 6364136223846793005 + token_id + 1) % 2**64
        states += state.to_bytes(8, "little")
    return int.from_bytes(blake2b(states, digest_size=16).digest()[:8], "little") % vocab_size


def test_the_next_token_is_a_hash_of_the_whole_text() -> None:
    assert next_token([5, 6, 7], 1000) == plain_next_token([5, 6, 7], 1000)
    assert generate([5, 6], 2, 1000) == [first := plain_next_token([5, 6], 1000), plain_next_token([5, 6, first], 1000)]


def test_a_prompt_in_one_step_in_chunks_and_token_by_token_gives_the_same_token() -> None:
    prompt = [3, 1, 4, 1, 5]
    for chunks in ([5], [2, 3], [1, 1, 1, 1, 1]):
        runner, sequence, start = runner_of_two_token_blocks(), make_sequence(prompt, [6, 0, 3]), 0
        tokens = []
        for size in chunks:
            tokens.append(run_row(runner, sequence, start, size))
            start += size
        assert tokens == [None] * (len(chunks) - 1) + [next_token(prompt, 1000)]


def test_a_block_that_was_never_written_changes_the_token() -> None:
    runner, sequence = runner_of_two_token_blocks(), make_sequence([3, 1, 4, 1, 5], [0, 1, 2])
    assert run_row(runner, sequence, 2, 3) != next_token(sequence.token_ids, 1000)


def test_a_block_that_another_row_overwrote_changes_the_token() -> None:
    runner = runner_of_two_token_blocks()
    victim, culprit = make_sequence([3, 1, 4, 1, 5], [0, 1, 2]), make_sequence([9, 9], [1], "culprit")
    run_row(runner, victim, 0, 4)
    run_row(runner, culprit, 0, 2)
    assert run_row(runner, victim, 4, 1) != next_token(victim.token_ids, 1000)


def test_a_block_of_equal_tokens_after_another_beginning_changes_the_token() -> None:
    runner = runner_of_two_token_blocks()
    run_row(runner, make_sequence([1, 1, 7, 8], [0, 1]), 0, 4)
    borrower = make_sequence([2, 2, 7, 8, 9], [2, 1, 3])
    run_row(runner, borrower, 0, 2)
    assert run_row(runner, borrower, 4, 1) != next_token(borrower.token_ids, 1000)


def test_a_rightly_shared_block_gives_the_token_of_the_whole_text() -> None:
    runner = runner_of_two_token_blocks()
    run_row(runner, make_sequence([1, 1, 7, 8], [0, 1]), 0, 4)
    borrower = make_sequence([1, 1, 7, 8, 9], [0, 1, 3])
    assert run_row(runner, borrower, 4, 1) == next_token(borrower.token_ids, 1000)


def test_a_script_is_played_and_then_the_hash_speaks() -> None:
    runner, sequence = runner_of_two_token_blocks(script={"s": [42]}), make_sequence([1], [0, 1])
    assert run_row(runner, sequence, 0, 1) == 42
    sequence.token_ids.append(42)
    assert run_row(runner, sequence, 1, 1) == next_token([1, 42], 1000)


def test_a_failing_row_gives_its_words_and_no_token() -> None:
    runner = runner_of_two_token_blocks(fails={"bad": "out of ink"})
    good, bad = make_sequence([1], [0], "good"), make_sequence([2], [1], "bad")
    result = runner.run(StepPlan("p", (Row(good, 0, 0, 1), Row(bad, 1, 0, 1))))
    assert dict(result.errors) == {"bad": "out of ink"}
    assert set(result.tokens) == {"good"}


def test_the_scripted_time_is_that_of_the_plan() -> None:
    runner = runner_of_two_token_blocks(step_s=lambda plan: 0.25 * plan.num_new_tokens)
    result = runner.run(StepPlan("p", (Row(make_sequence([1, 2, 3], [0, 1]), 0, 0, 3),)))
    assert result.step_s == 0.75


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_the_end_of_text_comes_at_its_rate_and_nowhere_else(rate: float) -> None:
    texts = [[i, i + 1] for i in range(400)]
    drawn = [next_token(text, 50, eos_token_id=7, eos_rate=rate) for text in texts]
    share = drawn.count(7) / len(drawn)
    assert abs(share - rate) < 0.1
    assert rate > 0 or 7 in [next_token(text, 50) for text in texts]  # would have been said otherwise


def test_logprobs_are_given_where_they_are_asked_for() -> None:
    runner = runner_of_two_token_blocks()
    result = runner.run(StepPlan("p", (Row(make_sequence([1], [0], logprobs=2), 0, 0, 1),)))
    token = result.tokens["s"]
    assert token.logprob == 0.0
    assert [top.token_id for top in token.top] == [token.token_id]
