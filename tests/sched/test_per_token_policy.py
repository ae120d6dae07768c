"""Batching by the token against schedules worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everystep.runner.fake import generate
from everystep.sched import BlockPool, PerTokenPolicy
from everystep.types import Sequence

Make = Callable[..., Sequence]


def seating(stage: Any) -> list[tuple[int, str, int]]:
    return [(row.seat, row.sequence.sequence_id, row.num_new_tokens) for row in stage.step().rows]


def test_a_seat_that_frees_is_filled_before_the_next_token(seq: Make, bench: Any) -> None:
    lane = PerTokenPolicy(2)
    stage = bench(lane)
    stage.add(
        seq("a", 3, max_tokens=1), seq("b", 4, max_tokens=3), seq("c", 5, max_tokens=1), seq("d", 6, max_tokens=1)
    )
    assert seating(stage) == [(0, "a", 3), (1, "b", 4)]
    assert stage.why() == [("c", "no_seat", None), ("d", "no_seat", None)]
    assert seating(stage) == [(0, "c", 5), (1, "b", 1)]
    assert seating(stage) == [(0, "d", 6), (1, "b", 1)]
    assert not lane.has_work()


def test_a_width_of_two_serves_lengths_60_5_5_5_in_60_steps_with_nobody_held(seq: Make, bench: Any) -> None:
    stage = bench(PerTokenPolicy(2))
    stage.add(*(seq(name, max_tokens=length) for name, length in zip("abcd", [60, 5, 5, 5], strict=True)))
    plans = stage.run()
    assert len(plans) == 60
    assert [len(plan.rows) for plan in plans] == [2] * 15 + [1] * 45
    assert not any(plan.held for plan in plans)


def test_without_reuse_every_step_reads_the_whole_text_and_says_the_same(seq: Make, bench: Any) -> None:
    stage = bench(PerTokenPolicy(4, reuse_cache=False))
    sequence = seq("a", 3, max_tokens=4)
    prompt = list(sequence.token_ids)
    stage.add(sequence)
    plans = stage.run()
    assert [(row.start, row.num_new_tokens) for plan in plans for row in plan.rows] == [(0, 3), (0, 4), (0, 5), (0, 6)]
    assert stage.tokens["a"] == generate(prompt, 4, stage.runner.vocab_size)


def test_context_tokens_bound_who_sits_together(seq: Make, bench: Any) -> None:
    stage = bench(PerTokenPolicy(4, max_batch_tokens=10))
    stage.add(seq("a", 6, max_tokens=2), seq("b", 5, max_tokens=1), seq("c", 1, max_tokens=1))
    assert [name for _, name, _ in seating(stage)] == ["a"]
    assert stage.why() == [("b", "no_budget", None), ("c", "behind", "b")]
    seating(stage)
    assert [name for _, name, _ in seating(stage)] == ["b", "c"]


def test_a_text_above_the_bound_sits_alone(seq: Make, bench: Any) -> None:
    stage = bench(PerTokenPolicy(4, max_batch_tokens=10))
    stage.add(seq("huge", 50, max_tokens=1), seq("b", 1, max_tokens=1))
    assert [name for _, name, _ in seating(stage)] == ["huge"]
    assert [name for _, name, _ in seating(stage)] == ["b"]


def test_who_lacks_the_blocks_of_its_worst_case_waits_for_them(seq: Make, bench: Any) -> None:
    lane = PerTokenPolicy(4, pool=BlockPool(3, 4))
    stage = bench(lane)
    stage.add(seq("a", 5, max_tokens=4), seq("b", 5, max_tokens=4), seq("c", 1, max_tokens=1))
    assert [name for _, name, _ in seating(stage)] == ["a"]
    assert stage.why() == [("b", "no_blocks", None), ("c", "behind", "b")]
    assert [entry.needs_blocks for entry in lane.why_waiting()] == [2, None]
    stage.run()
    assert {len(tokens) for tokens in stage.tokens.values()} == {4, 1}


def test_equal_prompts_share_nothing(seq: Make, bench: Any) -> None:
    lane = PerTokenPolicy(2, pool=BlockPool(8, 4))
    stage = bench(lane)
    stage.add(seq("a", range(9), max_tokens=1))
    stage.run()
    stage.add(seq("b", range(9), max_tokens=1))
    assert seating(stage) == [(0, "b", 9)]
    assert lane.num_prefix_hit_tokens == 0


def test_who_leaves_frees_seat_and_blocks_at_once(seq: Make, bench: Any) -> None:
    stage = bench(PerTokenPolicy(1))
    stage.add(seq("leaves", max_tokens=50), seq("waits", max_tokens=1), seq("gives up", max_tokens=1))
    stage.step()
    stage.abort("gives up")
    stage.abort("leaves")
    assert stage.pool.num_used_blocks == 0
    assert seating(stage) == [(0, "waits", 5)]
