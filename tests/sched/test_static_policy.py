"""Static batching against schedules worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everystep.sched import BlockPool, ContinuousPolicy, StaticPolicy
from everystep.types import Sequence, StepPlan

Make = Callable[..., Sequence]


def members(plan: StepPlan) -> list[str]:
    return [row.sequence.sequence_id for row in plan.rows]


def firsts(plans: list[StepPlan]) -> list[list[str]]:
    """Who sat down in the first step of each round."""
    return [members(plan) for plan in plans if any(row.start == 0 for row in plan.rows)]


def test_six_prompts_on_four_seats_run_as_rounds_of_four_and_two(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(4)
    stage = bench(lane)
    stage.add(*(seq(name, max_tokens=3) for name in "abcdef"))
    plans = stage.run()
    assert firsts(plans) == [["a", "b", "c", "d"], ["e", "f"]]
    assert len(plans) == 6


def test_requests_of_two_and_three_that_wait_behind_a_round_are_taken_as_four_and_one(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(4)
    stage = bench(lane)
    stage.add(seq("running", max_tokens=3))
    stage.step()
    stage.add(*(seq(name, max_tokens=2) for name in ["A1", "A2", "B1", "B2", "B3"]))
    assert stage.why(lane) == [(name, "round_running", None) for name in ["A1", "A2", "B1", "B2", "B3"]]
    assert firsts(stage.run()) == [["A1", "A2", "B1", "B2"], ["B3"]]


def test_a_seventh_prompt_waits_for_the_round_though_seats_are_held(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(4)
    stage = bench(lane)
    stage.add(*(seq(name, max_tokens=length) for name, length in zip("abcd", [1, 1, 1, 9], strict=True)))
    stage.step()
    stage.step()
    stage.add(seq("seventh"))
    plan = stage.step()
    assert [row.sequence.sequence_id for row in plan.held] == ["a", "b", "c"]
    assert members(plan) == ["d"]
    assert stage.why(lane) == [("seventh", "round_running", None)]


def test_lengths_5_5_5_60_hold_three_seats_for_55_steps_and_continuous_holds_none(seq: Make, bench: Any) -> None:
    lengths = zip("abcd", [5, 5, 5, 60], strict=True)
    requests = [seq(name, max_tokens=length) for name, length in lengths]
    stage = bench(StaticPolicy(4))
    stage.add(*requests)
    plans = stage.run()
    assert [len(plan.held) for plan in plans] == [0] * 5 + [3] * 55
    assert [row.seat for row in plans[-1].held] == [0, 1, 2]

    stage = bench(ContinuousPolicy(4, 64))
    stage.add(*(seq(name, max_tokens=length) for name, length in zip("abcd", [5, 5, 5, 60], strict=True)))
    plans = stage.run()
    assert [len(plan.held) for plan in plans] == [0] * 60
    assert [len(plan.rows) for plan in plans] == [4] * 5 + [1] * 55


def test_a_long_prompt_is_read_whole_in_the_first_step(seq: Make, bench: Any) -> None:
    stage = bench(StaticPolicy(2, max_batch_tokens=8))
    stage.add(seq("long", prompt=500, max_tokens=2))
    first, second = stage.run()
    assert [(row.start, row.num_new_tokens) for row in first.rows + second.rows] == [(0, 500), (500, 1)]


def test_prompt_tokens_bound_a_round_and_the_next_one_waits_behind_nobody_new(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(4, max_batch_tokens=10)
    stage = bench(lane)
    stage.add(seq("a", prompt=6, max_tokens=1), seq("b", prompt=5, max_tokens=1), seq("c", prompt=1, max_tokens=1))
    assert members(stage.step()) == ["a"]  # 6 + 5 > 10, and c doesn't slip past b
    assert stage.why() == [("b", "no_budget", None), ("c", "behind", "b")]
    assert firsts(stage.run()) == [["b", "c"]]


def test_a_round_takes_only_members_whose_worst_case_has_blocks(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(4, pool=BlockPool(5, 4))
    stage = bench(lane)
    # 5 prompt tokens and 4 of output, the last of which is never computed: 8 tokens, 2 blocks
    stage.add(*(seq(name, prompt=5, max_tokens=4) for name in "abc"))
    assert members(stage.step()) == ["a", "b"]
    assert stage.pool.num_used_blocks == 4
    assert stage.why() == [("c", "no_blocks", None)]
    assert [entry.needs_blocks for entry in lane.why_waiting()] == [2]  # of which one is free
    stage.step()
    assert stage.why() == [("c", "round_running", None)]
    assert firsts(stage.run()) == [["c"]]


def test_a_member_that_leaves_midway_frees_its_blocks_at_once_and_holds_its_seat(seq: Make, bench: Any) -> None:
    stage = bench(StaticPolicy(2))
    stage.add(seq("stays", max_tokens=4), seq("leaves", max_tokens=4), seq("waits"))
    stage.step()
    stage.abort("leaves")
    plan = stage.step()
    assert members(plan) == ["stays"]
    assert [row.sequence.sequence_id for row in plan.held] == ["leaves"]
    stage.run()
    assert stage.ends == {"stays": "length", "leaves": "aborted", "waits": "length"}


def test_a_round_whose_members_all_left_gives_way_to_the_next(seq: Make, bench: Any) -> None:
    stage = bench(StaticPolicy(2))
    stage.add(seq("a"), seq("b"), seq("next"))
    stage.step()
    stage.abort("a")
    stage.abort("b")
    plan = stage.step()
    assert (members(plan), plan.held) == (["next"], ())


def test_a_full_batch_or_the_patience_of_the_first_starts_a_round_that_waits_for_company(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(3, max_wait_s=2.0)
    stage = bench(lane)
    stage.now_s = 10.0
    stage.add(seq("a", max_tokens=1, arrival_s=10.0))
    assert stage.step() is None
    assert lane.ready_at_s() == 12.0
    stage.now_s = 11.0
    stage.add(seq("b", max_tokens=1, arrival_s=11.0))
    assert stage.step() is None
    assert lane.ready_at_s() == 12.0
    stage.now_s = 12.0
    assert members(stage.step()) == ["a", "b"]
    assert lane.ready_at_s() is None
    stage.add(*(seq(name, max_tokens=1, arrival_s=12.0) for name in "cde"))
    assert members(stage.step()) == ["c", "d", "e"]


def test_a_lane_whose_only_waiter_left_has_no_time_to_wake_for(seq: Make, bench: Any) -> None:
    lane = StaticPolicy(3, max_wait_s=2.0)
    stage = bench(lane)
    stage.add(seq("a"))
    assert stage.step() is None
    stage.abort("a")
    assert lane.ready_at_s() is None
    assert not lane.has_work()


def test_tokens_that_fill_the_round_end_the_wait_for_company(seq: Make, bench: Any) -> None:
    stage = bench(StaticPolicy(3, max_wait_s=2.0, max_batch_tokens=10))
    stage.add(seq("a", prompt=10))
    assert members(stage.step()) == ["a"]
