"""The record of a step, from a plan and what came of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from everystep.observe.record import RecordBuilder
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, Policy, Row, SampledToken, Sequence, StepPlan, TokenEvent, WaitCause, Waiting


def sequence(name: str, num_prompt_tokens: int = 5, num_output_tokens: int = 0, arrival_s: float = 0.0) -> Sequence:
    token_ids = [1] * (num_prompt_tokens + num_output_tokens)
    return Sequence(
        name, f"r-{name}", "lane", token_ids, num_prompt_tokens, SamplingParams(), 0, frozenset(), arrival_s=arrival_s
    )


def lane(**changes: Any) -> Policy:
    told = {"name": "lane", "num_seats": 6, "num_preemptions": 0, "num_prefix_hit_tokens": 0}
    return cast(Policy, SimpleNamespace(**{**told, "last_started": (), "last_preempted": (), **changes}))


def build(builder: RecordBuilder, plan: StepPlan, *, of: Policy | None = None, **changes: Any) -> Any:
    told: dict[str, Any] = {"step": 7, "waiting": (), "events": [], "start_s": 1.5, "end_s": 2.0}
    told |= {"blocks_used": 3, "blocks_after": 2, "blocks_total": 9, **changes}
    return builder.build(lane=of or lane(), plan=plan, **told)


def plain(data: bytes) -> Any:
    return msgspec.msgpack.decode(data)


def test_rows_stand_by_seat_with_what_they_computed_and_how_they_ended() -> None:
    reading, resumed = sequence("reading", 9), sequence("resumed", 5, 3)
    writing, ended = sequence("writing", 5, 4), sequence("ended", 5, 2)
    rows = (Row(writing, 3, 8, 1), Row(resumed, 1, 0, 8), Row(reading, 0, 4, 5))
    events = [
        TokenEvent("reading", SampledToken(1)),
        TokenEvent("writing", SampledToken(2), FinishReason.STOP),
    ]
    plan = StepPlan("lane", rows, held=(Row(ended, 2, 7, 0),))
    assert plain(build(RecordBuilder(), plan, events=events).record) == [
        7, "lane", 1.5, 2.0, [3, 8],
        [
            [0, "reading", "r-reading", "prefill", 5, 9, None],
            [1, "resumed", "r-resumed", "prefill", 8, 8, None],
            [2, "ended", "r-ended", "held", 0, 7, None],
            [3, "writing", "r-writing", "decode", 1, 9, "stop"],
        ],
        3, 9,
    ]  # fmt: skip


def test_the_first_row_beyond_the_prompt_decodes_and_its_last_token_still_reads() -> None:
    rows = (Row(sequence("last", 5), 0, 4, 1), Row(sequence("beyond", 5, 1), 1, 5, 1))
    record = plain(build(RecordBuilder(), StepPlan("lane", rows)).record)
    assert [row[3] for row in record[5]] == ["prefill", "decode"]


def test_the_summary_counts_seats_and_tokens_and_the_blocks_that_are_left() -> None:
    plan = StepPlan("lane", (Row(sequence("a"), 0, 0, 5), Row(sequence("b"), 1, 5, 1)), (Row(sequence("c"), 2, 6, 0),))
    summary = build(RecordBuilder(), plan, waiting=(Waiting(sequence("d"), WaitCause.NO_SEAT),)).summary
    assert (summary.num_working, summary.num_held, summary.num_empty) == (2, 1, 3)
    assert (summary.num_new_tokens, summary.num_waiting) == (6, 1)
    assert (summary.step, summary.policy, summary.start_s, summary.end_s) == (7, "lane", 1.5, 2.0)
    assert (summary.blocks_used, summary.blocks_total) == (2, 9)


def test_counters_of_a_lane_are_told_by_what_they_grew_since_that_lane_s_step_before() -> None:
    builder, plan = RecordBuilder(), StepPlan("lane")
    told = [
        build(builder, plan, of=lane(num_preemptions=2, num_prefix_hit_tokens=30)).summary,
        build(builder, plan, of=lane(name="other", num_preemptions=5)).summary,
        build(builder, plan, of=lane(num_preemptions=3, num_prefix_hit_tokens=30)).summary,
    ]
    assert [(one.num_preemptions, one.num_prefix_hit_tokens) for one in told] == [(2, 30), (5, 0), (1, 0)]


def test_who_was_seated_and_who_lost_a_seat_cross_with_the_events() -> None:
    events = [TokenEvent("a", SampledToken(1))]
    made = build(RecordBuilder(), StepPlan("lane"), of=lane(last_started=("a",), last_preempted=("b",)), events=events)
    assert (made.started, made.preempted, made.events) == (("a",), ("b",), tuple(events))


def test_an_unchanged_line_is_told_once_for_each_lane() -> None:
    builder, line = RecordBuilder(), (Waiting(sequence("a"), WaitCause.NO_SEAT),)
    static, continuous = StepPlan("static"), StepPlan("continuous")
    assert build(builder, static, waiting=line).waiting is not None
    assert build(builder, continuous, waiting=line).waiting is not None
    assert build(builder, static, waiting=line).waiting is None
    assert build(builder, continuous, waiting=()).waiting == b"\x90"
    assert build(builder, static, waiting=tuple(list(line))).waiting is not None


def test_a_line_names_who_goes_first_by_place_where_it_can() -> None:
    line = (
        Waiting(sequence("a", arrival_s=0.25), WaitCause.NO_BLOCKS, needs_blocks=4),
        Waiting(sequence("b", arrival_s=0.5), WaitCause.BEHIND, "a"),
        Waiting(sequence("c", arrival_s=0.75), WaitCause.BEHIND, "seated"),
    )
    assert plain(build(RecordBuilder(), StepPlan("lane"), waiting=line).waiting) == [
        ["a", "r-a", "no_blocks", 0.25, None, 4],
        ["b", "r-b", "behind", 0.5, 0, None],
        ["c", "r-c", "behind", 0.75, "seated", None],
    ]
