"""Closed loads: whose turn it is, what is sent, and that other work than the load's is an error."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from bench.passes_by_hand import ContenderByHand, honest
from everystep.bench.closed import ClosedLoad, Measured, fresh_prompts, run_closed
from everystep.bench.passes import BenchFailed, Pass, itl_s, tpot_s, ttft_s

LOAD = ClosedLoad(sizes=(1, 3), repeats=(2, 1), prompt_tokens=5, max_tokens=6, token_ids=range(100, 10_000), seed=7)
Asked = list[tuple[str, list[list[int]], int]]


async def run(contenders: Sequence[ContenderByHand], load: ClosedLoad = LOAD) -> list[Measured]:
    return [cell async for cells in run_closed(contenders, load, lambda words: None) for cell in cells]


async def test_contenders_take_turns_within_a_round_and_another_begins_each_time() -> None:
    asked: Asked = []
    await run([ContenderByHand(name, asked) for name in ("a", "b", "c")])
    rounds = ["".join(name for name, _, _ in asked[place : place + 3]) for place in range(0, len(asked), 3)]
    assert rounds == ["cab", "abc", "bca", "cab", "abc"], "an uncounted and two counted at N = 1, then one each"


async def test_nobody_begins_before_the_others_rest() -> None:
    asked: Asked = []
    num_asked_at_rest: list[int] = []

    async def rest() -> None:
        num_asked_at_rest.append(len(asked))

    contenders = [ContenderByHand(name, asked) for name in ("a", "b")]
    async for _ in run_closed(contenders, LOAD, lambda words: None, rest):
        pass
    assert num_asked_at_rest == list(range(len(asked)))


async def test_all_get_the_same_prompts_in_a_round_and_new_ones_in_the_next() -> None:
    asked: Asked = []
    await run([ContenderByHand(name, asked) for name in ("a", "b")])
    by_round = [[prompts for _, prompts, _ in asked[place : place + 2]] for place in range(0, len(asked), 2)]
    assert all(first == second for first, second in by_round)
    texts = [tuple(prompt) for first, _ in by_round for prompt in first]
    assert len(set(texts)) == len(texts) == 3 * 1 + 2 * 3


async def test_the_first_round_warms_up_and_isnt_counted() -> None:
    asked: Asked = []
    cells = await run([ContenderByHand("a", asked)])
    assert [max_tokens for _, _, max_tokens in asked] == [4, 6, 6, 4, 6]
    assert [(cell.n, len(cell.passes)) for cell in cells] == [(1, 2), (3, 1)]
    assert LOAD.num_turns == len(asked)


def test_prompts_are_those_of_the_seed_within_the_vocabulary() -> None:
    first, again = (fresh_prompts(random.Random(3), range(40, 50), 4, 6) for _ in range(2))
    assert first == again
    assert {len(prompt) for prompt in first} == {6}
    assert all(40 <= token < 50 for prompt in first for token in prompt)


async def test_a_token_too_few_is_an_error_and_no_figure() -> None:
    def liar(prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        done = honest(prompts, max_tokens)
        return Pass(done.wall_s, done.num_tokens - 1, done.arrivals_s, 0.0)

    with pytest.raises(BenchFailed, match="b made 3 tokens of 4: not like with like"):
        await run([ContenderByHand("a", []), ContenderByHand("b", [], liar)])


async def test_a_prompt_without_an_answer_is_an_error() -> None:
    def silent(prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        return Pass(1.0, len(prompts) * max_tokens, ((),) * len(prompts), 0.0)

    with pytest.raises(BenchFailed, match="a left 1 of 1 prompts without an answer"):
        await run([ContenderByHand("a", [], silent)])


def test_the_first_token_counts_as_ttft_and_never_as_a_gap() -> None:
    measured = Pass(3.0, 5, ((2.0, 2.25, 2.5), (1.0, 3.0)), 0.0)
    assert ttft_s(measured) == [2.0, 1.0]
    assert itl_s(measured) == [0.25, 0.25, 2.0]
    assert tpot_s(measured, 3) == [0.25, 1.0]


def test_one_token_has_no_time_per_token_after_the_first() -> None:
    assert tpot_s(Pass(1.0, 1, ((1.0,),), 0.0), 1) == []


def test_the_typical_pass_is_the_median_one() -> None:
    passes = [Pass(wall_s, 1, ((wall_s,),), 0.0) for wall_s in (5.0, 1.0, 2.0, 9.0)]
    assert Measured(ContenderByHand("a", []), 1, passes).typical.wall_s == 2.0
