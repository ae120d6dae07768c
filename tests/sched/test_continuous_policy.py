"""Continuous batching against schedules worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everystep.errors import ConfigError
from everystep.runner.fake import FakeRunner, generate
from everystep.sched import BlockPool, ContinuousPolicy
from everystep.types import FinishReason, Sequence, StepPlan

Make = Callable[..., Sequence]


def shares(plan: StepPlan) -> list[tuple[str, int, int]]:
    return [(row.sequence.sequence_id, row.start, row.num_new_tokens) for row in plan.rows]


# --- budget ------------------------------------------------------------------------------------------
def test_decoding_rows_come_first_and_a_long_prompt_gets_what_is_left_in_chunks(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 10))
    stage.add(seq("short", 3, max_tokens=9))
    assert shares(stage.step()) == [("short", 0, 3)]
    stage.add(seq("long", 25, max_tokens=2))
    assert shares(stage.step()) == [("short", 3, 1), ("long", 0, 9)]
    assert shares(stage.step()) == [("short", 4, 1), ("long", 9, 9)]
    assert shares(stage.step()) == [("short", 5, 1), ("long", 18, 7)]
    assert shares(stage.step()) == [("short", 6, 1), ("long", 25, 1)]
    stage.run()
    assert stage.tokens["long"] == generate(stage.sequences["long"].token_ids[:25], 2, stage.runner.vocab_size)


def test_while_a_prompt_of_4000_tokens_is_read_its_neighbours_get_a_token_every_step(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 512))
    stage.add(*(seq(name, max_tokens=20) for name in "abc"))
    stage.step()
    stage.add(seq("long", 4000, max_tokens=1))
    for _ in range(8):  # 8 chunks of 509 tokens
        plan = stage.step()
        assert plan.num_new_tokens <= 512
        assert shares(plan)[:3] == [(name, plan.rows[0].start, 1) for name in "abc"]
    assert stage.ends == {"long": FinishReason.LENGTH}


def test_who_finds_the_budget_spent_waits_for_it(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 10))
    stage.add(seq("a", 12, max_tokens=1), seq("b", 3, max_tokens=1), seq("c", 3, max_tokens=1))
    assert shares(stage.step()) == [("a", 0, 10)]
    assert stage.why() == [("b", "no_budget", None), ("c", "behind", "b")]
    assert shares(stage.step()) == [("a", 10, 2), ("b", 0, 3), ("c", 0, 3)]


def test_a_budget_below_the_seats_is_refused(seq: Make) -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens=7 is below max_num_seqs=8"):
        ContinuousPolicy(8, 7)


def test_everybody_waits_for_a_seat_when_all_are_taken(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(1, 10))
    stage.add(seq("a", max_tokens=2), seq("b"), seq("c"))
    stage.step()
    assert stage.why() == [("b", "no_seat", None), ("c", "no_seat", None)]


def test_the_causes_are_the_same_object_while_nothing_changes(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(1, 10)
    stage = bench(lane)
    stage.add(seq("a", max_tokens=9), seq("b"))
    stage.step()
    told = lane.why_waiting()
    stage.step()
    assert lane.why_waiting() is told


def test_admission_is_by_priority_then_arrival(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(1, 10))
    for name, priority in [("first", 0), ("second", 0), ("urgent", -5), ("idle", 9)]:
        stage.add(seq(name, max_tokens=1, priority=priority))
    assert [shares(plan)[0][0] for plan in stage.run()] == ["urgent", "first", "second", "idle"]


# --- prefixes ----------------------------------------------------------------------------------------
def test_a_prompt_that_was_read_before_is_read_only_from_its_last_full_block_on(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(16, 4))
    stage = bench(lane)
    stage.add(seq("first", range(10), max_tokens=3))
    stage.run()
    stage.add(seq("again", range(10), max_tokens=3))
    assert shares(stage.step()) == [("again", 8, 2)]
    assert stage.sequences["again"].num_cached_tokens == 8
    assert lane.num_prefix_hit_tokens == 8
    stage.run()
    assert stage.tokens["again"] == stage.tokens["first"] == generate(range(10), 3, stage.runner.vocab_size)


def test_a_fully_cached_prompt_still_computes_its_last_block_to_draw_from(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(16, 4)))
    stage.add(seq("first", range(8), max_tokens=3))
    stage.run()
    stage.add(seq("again", range(8), max_tokens=3))
    assert shares(stage.step()) == [("again", 4, 4)]
    stage.run()
    assert stage.tokens["again"] == stage.tokens["first"]


def test_a_running_neighbour_shares_its_blocks_and_each_keeps_its_own_end(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(16, 4)))
    prompt = list(range(8))
    stage.add(seq("a", [*prompt, 100], max_tokens=9))
    stage.step()
    stage.add(seq("b", [*prompt, 200], max_tokens=9))
    stage.step()
    a, b = stage.sequences["a"].block_ids, stage.sequences["b"].block_ids
    assert a[:2] == b[:2]
    assert not set(a[2:]) & set(b[2:])
    stage.run()
    assert stage.tokens["a"] == generate([*prompt, 100], 9, stage.runner.vocab_size)
    assert stage.tokens["b"] == generate([*prompt, 200], 9, stage.runner.vocab_size)


def test_equal_tokens_after_a_different_beginning_are_no_hit(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(16, 4))
    stage = bench(lane)
    stage.add(seq("a", [1, 1, 1, 1, 5, 6, 7, 8, 9], max_tokens=2))
    stage.run()
    stage.add(seq("b", [2, 2, 2, 2, 5, 6, 7, 8, 9], max_tokens=2))
    stage.run()
    assert lane.num_prefix_hit_tokens == 0
    assert stage.tokens["b"] == generate([2, 2, 2, 2, 5, 6, 7, 8, 9], 2, stage.runner.vocab_size)


def test_an_answer_becomes_part_of_the_beginning_that_the_next_turn_finds(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(16, 4)))
    stage.add(seq("turn 1", range(6), max_tokens=7))
    stage.run()
    # 6 + 7 tokens are known and 12 computed: three full blocks
    stage.add(seq("turn 2", [*stage.sequences["turn 1"].token_ids, 50, 51], max_tokens=2))
    assert shares(stage.step()) == [("turn 2", 12, 3)]


def test_one_that_ends_in_its_first_step_leaves_its_prompt_to_be_found(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(16, 4)))
    stage.add(seq("one token", range(9), max_tokens=1))
    stage.run()
    stage.add(seq("again", range(9), max_tokens=1))
    assert shares(stage.step()) == [("again", 8, 1)]


def test_a_failed_row_leaves_nothing_to_be_found(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(16, 4))
    stage = bench(lane, runner=FakeRunner(block_size=4, fails={"bad": "broken"}))
    stage.add(seq("bad", range(9)))
    stage.run()
    stage.add(seq("good", range(9)))
    assert shares(stage.step()) == [("good", 0, 9)]


def test_without_a_prefix_cache_everything_is_read_anew(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(16, 4, prefix_cache=False)))
    for name in "ab":
        stage.add(seq(name, range(9), max_tokens=1))
        assert shares(stage.step()) == [(name, 0, 9)]


def test_nothing_is_remembered_of_sequences_that_ended(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(16, 4))
    stage = bench(lane)
    stage.add(*(seq(name, 9) for name in "abcdef"))
    stage.step()
    stage.abort("b")
    stage.abort("f")
    stage.run()
    assert len(lane._keys) == 0


# --- preemption --------------------------------------------------------------------------------------
def test_the_worst_ranked_gives_its_blocks_back_and_ends_with_the_same_tokens(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(6, 4))
    stage = bench(lane)
    stage.add(*(seq(name, 6, max_tokens=14) for name in "ab"))  # 20 tokens each in the end, and 24 places
    plans = stage.run()
    assert lane.num_preemptions >= 1
    assert stage.sequences["a"].num_preemptions == 0
    assert stage.sequences["b"].num_preemptions == lane.num_preemptions
    for name in "ab":
        assert stage.tokens[name] == generate(stage.sequences[name].token_ids[:6], 14, stage.runner.vocab_size)
    assert len(plans) <= 2 * 14 + lane.num_preemptions


def test_the_head_of_the_line_says_how_many_blocks_it_needs(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(4, 4))
    stage = bench(lane)
    stage.add(seq("a", 7, max_tokens=9))  # two blocks at once, four in the end
    stage.step()
    stage.add(seq("b", 15, max_tokens=1), seq("c", 1, max_tokens=1))
    stage.step()
    told = lane.why_waiting()
    assert [(entry.why, entry.needs_blocks) for entry in told] == [("no_blocks", 4), ("behind", None)]
    stage.step()
    assert lane.why_waiting() is told
    stage.run()


def test_the_plan_says_who_was_preempted_and_nobody_is_admitted_in_that_step(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(4, 4))
    stage = bench(lane)
    stage.add(seq("a", 7, max_tokens=9), seq("b", 7, max_tokens=9))  # two blocks each, all of the pool
    assert [name for name, _, _ in shares(stage.step())] == ["a", "b"]
    stage.step()
    stage.add(seq("urgent", 1, max_tokens=1, priority=-9))
    plan = stage.step()  # the ninth token of a needs a third block
    assert lane.last_preempted == ("b",)
    assert shares(plan) == [("a", 8, 1)]
    assert stage.why() == [("urgent", "no_blocks", None), ("b", "behind", "urgent")]
    assert lane.why_waiting()[0].needs_blocks is None  # nobody asked what it needs in a step that took blocks away
    assert [name for name, _, _ in shares(stage.step())] == ["a", "urgent"]
    assert lane.last_preempted == ()
    stage.run()
    assert set(stage.ends) == {"a", "b", "urgent"}


def test_a_preempted_sequence_stands_before_later_ones_of_its_priority(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(4, 4))
    stage = bench(lane)
    stage.add(seq("a", 7, max_tokens=9), seq("b", 7, max_tokens=9))
    stage.step()
    stage.add(seq("later", 1, max_tokens=1, arrival_s=0.1))
    while not lane.last_preempted:
        stage.step()
    assert [name for name, _, _ in stage.why()] == ["b", "later"]


def test_a_resumed_sequence_finds_its_own_blocks_again(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(2, 64, pool=BlockPool(7, 4))
    stage = bench(lane)
    stage.add(seq("a", 10, max_tokens=10), seq("b", 10, max_tokens=10))
    while not lane.last_preempted:
        stage.step()
    while "b" not in lane.last_started:
        plan = stage.step()
    (resumed,) = [row for row in plan.rows if row.sequence.sequence_id == "b"]
    assert resumed.start > 0
    assert stage.sequences["b"].num_cached_tokens == 0  # its prompt was no hit


def test_lone_sequences_never_preempt_each_other_when_the_pool_is_roomy(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(8, 64)
    stage = bench(lane)
    stage.add(*(seq(name, 30, max_tokens=40) for name in "abcdefgh"))
    stage.run()
    assert lane.num_preemptions == 0


def test_the_victim_is_the_worst_ranked_whoever_came_first(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(4, 64, pool=BlockPool(4, 4))
    stage = bench(lane)
    stage.add(seq("idle", 7, max_tokens=9, priority=5))
    stage.step()
    stage.add(seq("urgent", 7, max_tokens=9))
    while not lane.last_preempted:
        stage.step()
    assert lane.last_preempted == ("idle",)
    assert stage.sequences["idle"].num_computed_tokens == 0
    assert stage.sequences["idle"].num_tokens > 7


def test_a_preempted_sequence_stands_before_its_equals_too(seq: Make, bench: Any) -> None:
    lane = ContinuousPolicy(2, 64, pool=BlockPool(4, 4))
    stage = bench(lane)
    sequences = [seq("a", 7, max_tokens=9), seq("b", 7, max_tokens=9), seq("equal", 1, max_tokens=1)]
    for sequence in sequences:
        sequence.arrival_index = 0
    stage.add(*sequences)
    while not lane.last_preempted:
        stage.step()
    assert [name for name, _, _ in stage.why()] == ["b", "equal"]


def test_an_admission_takes_blocks_for_a_token_more_than_is_known(seq: Make, bench: Any) -> None:
    stage = bench(ContinuousPolicy(4, 64, pool=BlockPool(4, 4)))
    stage.add(seq("fills a block", 4))
    stage.step()
    assert len(stage.sequences["fills a block"].block_ids) == 2


@pytest.mark.parametrize(("num_blocks", "is_admitted"), [(9, False), (10, True)])
def test_an_admission_leaves_a_block_for_every_four_running_rows_to_grow(
    num_blocks: int, is_admitted: bool, seq: Make, bench: Any
) -> None:
    lane = ContinuousPolicy(8, 64, pool=BlockPool(num_blocks, 4))
    stage = bench(lane)
    stage.add(*(seq(name, 5, max_tokens=3) for name in "abcd"))  # two blocks each
    stage.step()
    stage.add(seq("new", 1, max_tokens=1))
    stage.step()
    assert ("new" in lane.last_started) is is_admitted
    stage.run()
