"""A request's spans: which there are, when each begins and ends, and what it was that was waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everystep.observe.observer import Observer
from everystep.observe.spans import MAX_SEQUENCES, SpanData, seats_of, tell_spans
from everystep.types import FinishReason
from observe.made_steps import output, row, submit, waiting

PACKS = 32


@pytest.fixture
def observer() -> Observer:
    """One that has seen a step."""
    seen = Observer(policies=("static", "continuous"))
    seen.step(output(0, start_s=0.0, rows=[row(0, "other")]))
    return seen


def spans_of(observer: Observer, num_packs: int = PACKS) -> tuple[SpanData, ...]:
    snapshot = observer.requests.waits("r", num_packs)
    assert snapshot is not None
    return tell_spans(snapshot)


def outline(spans: tuple[SpanData, ...]) -> list[tuple[str, float, float]]:
    return [(span.name, pytest.approx(span.start_s), pytest.approx(span.end_s)) for span in spans]


def causes(span: SpanData) -> dict[object, object]:
    names, seconds = span.attributes["everystep.queue.causes"], span.attributes["everystep.queue.cause_s"]
    assert isinstance(names, list)
    assert isinstance(seconds, list)
    return dict(zip(names, map(pytest.approx, seconds), strict=True))


def test_one_sequence_waits_is_read_and_generates_without_a_gap(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=0.5))
    observer.step(output(1, start_s=1.0, rows=[row(0, "other")], line=[waiting("a", "no_blocks", 0.5)]))
    observer.step(output(2, start_s=2.0, rows=[row(0, "other")], line=None))
    observer.step(output(3, start_s=3.0, rows=[row(0, "other")], line=[waiting("a", "no_seat", 0.5)]))
    observer.step(output(4, start_s=4.0, rows=[row(2, "a", phase="prefill", new=3)], line=[], started=["a"]))
    observer.token("a", 4.25)
    observer.step(output(5, start_s=5.0, rows=[row(2, "a")], line=None))
    observer.token("a", 5.25)
    observer.finished("a", FinishReason.LENGTH, 5.5)
    spans = spans_of(observer)
    assert outline(spans) == [("queue", 0.5, 4.0), ("prefill", 4.0, 4.25), ("decode", 4.25, 5.5)]
    assert causes(spans[0]) == {"arriving": 0.5, "no_blocks": 2.0, "no_seat": 1.0}
    assert spans[1].attributes == {"everystep.prompt_tokens": 3, "everystep.seats": [2]}
    assert spans[2].attributes == {"everystep.output_tokens": 2, "everystep.seats": [2]}
    assert seats_of(spans) == [2]


def test_who_never_sat_has_waited_to_its_end(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.step(output(1, start_s=2.0, rows=[row(0, "other")], line=[waiting("a", "no_seat", 1.0)]))
    observer.finished("a", FinishReason.TIMEOUT, 4.0)
    [queue] = spans_of(observer)
    assert (queue.name, queue.start_s, queue.end_s) == ("queue", 1.0, 4.0)
    assert sum(queue.attributes["everystep.queue.cause_s"]) <= 3.0  # type: ignore[arg-type]


def test_who_ends_before_the_first_token_was_read_to_its_end(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.step(output(1, start_s=2.0, rows=[row(0, "a", phase="prefill", new=2)], started=["a"]))
    observer.finished("a", FinishReason.ABORTED, 3.0)
    assert outline(spans_of(observer)) == [("queue", 1.0, 2.0), ("prefill", 2.0, 3.0)]


def test_who_ends_within_its_first_pass_had_a_seat_and_was_read(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.seated("a", 2.0)
    observer.finished("a", FinishReason.ABORTED, 3.0)
    spans = spans_of(observer)
    assert outline(spans) == [("queue", 1.0, 2.0), ("prefill", 2.0, 3.0)]
    assert "everystep.seats" not in spans[1].attributes, "which, no step says"


def test_who_lost_its_seat_waits_within_the_phase_that_this_interrupts(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=0.0))
    observer.step(output(1, start_s=1.0, rows=[row(0, "a", phase="prefill", new=3)], started=["a"]))
    observer.token("a", 1.5)
    observer.step(output(2, start_s=2.0, rows=[row(0, "b")], line=[waiting("a", "no_blocks", 0.0)], preempted=["a"]))
    observer.step(output(3, start_s=3.0, rows=[row(0, "b")], line=None))
    observer.step(output(4, start_s=4.0, rows=[row(1, "a")], line=[], started=["a"]))
    observer.token("a", 4.5)
    observer.step(output(5, start_s=5.0, rows=[row(0, "b")], line=[waiting("a", "behind", 0.0)], preempted=["a"]))
    observer.step(output(6, start_s=7.0, rows=[row(1, "a")], line=[], started=["a"]))
    observer.finished("a", FinishReason.STOP, 8.0)
    spans = spans_of(observer)
    assert outline(spans) == [("queue", 0.0, 1.0), ("prefill", 1.0, 1.5), ("decode", 1.5, 8.0)]
    decode = spans[2]
    assert outline(decode.children) == [("queue", 2.0, 4.0), ("queue", 5.0, 7.0)]
    assert [causes(wait) for wait in decode.children] == [{"no_blocks": 2.0}, {"behind": 2.0}]
    assert all(wait.attributes["everystep.queue.is_preempted"] for wait in decode.children)
    assert decode.attributes["everystep.seats"] == [0, 1]


def test_of_several_sequences_each_has_a_span_of_its_own_around_its_phases(observer: Observer) -> None:
    for sequence_id in ("a", "b"):
        observer.accepted(submit(sequence_id, arrival_s=1.0))
    rows = [row(3, "a", phase="prefill", new=3), row(4, "b", phase="prefill", new=3)]
    observer.step(output(1, start_s=2.0, rows=rows, started=["a", "b"]))
    observer.token("a", 2.5)
    observer.finished("a", FinishReason.STOP, 3.0)
    observer.finished("b", FinishReason.FAILED, 4.0)
    spans = spans_of(observer)
    assert outline(spans) == [("sequence", 1.0, 3.0), ("sequence", 1.0, 4.0)]
    assert [span.attributes["everystep.sequence.id"] for span in spans] == ["a", "b"]
    assert [span.attributes["everystep.finish_reason"] for span in spans] == ["stop", "failed"]
    assert [phase.name for phase in spans[0].children] == ["queue", "prefill", "decode"]
    assert [phase.name for phase in spans[1].children] == ["queue", "prefill"]
    assert seats_of(spans) == [3, 4]


def test_of_very_many_sequences_the_first_are_told(observer: Observer) -> None:
    for number in range(MAX_SEQUENCES + 5):
        observer.accepted(submit(f"s{number}", arrival_s=1.0))
        observer.finished(f"s{number}", FinishReason.ABORTED, 2.0)
    assert len(spans_of(observer)) == MAX_SEQUENCES


def test_a_lane_without_steps_is_told_from_the_marks_alone(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.started("a", 1.5)
    observer.token("a", 2.0)
    observer.finished("a", FinishReason.LENGTH, 3.0)
    spans = spans_of(observer)
    assert outline(spans) == [("queue", 1.0, 1.5), ("prefill", 1.5, 2.0), ("decode", 2.0, 3.0)]
    assert "everystep.seats" not in spans[1].attributes


def test_a_start_that_another_clock_puts_before_the_arrival_makes_no_negative_time(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.started("a", 0.9)
    observer.finished("a", FinishReason.ABORTED, 1.0)
    assert all(span.start_s <= span.end_s for span in _all(spans_of(observer)))


def test_a_very_long_wait_is_told_from_some_of_its_steps_and_its_ends_are_exact(observer: Observer) -> None:
    num_steps, num_packs = 2_000, 4
    observer.accepted(submit("a", arrival_s=0.0))
    for step in range(1, num_steps):
        why = "no_seat" if step < num_steps // 2 else "no_blocks"
        observer.step(output(step, start_s=float(step), rows=[row(0, "other")], line=[waiting("a", why, 0.0)]))
    observer.step(output(num_steps, start_s=float(num_steps), rows=[row(1, "a", new=3)], line=[], started=["a"]))
    observer.finished("a", FinishReason.LENGTH, num_steps + 1.0)
    snapshot = observer.requests.waits("r", num_packs)
    assert snapshot is not None
    seen = list(snapshot.steps)
    assert len(seen) <= 8 * num_packs + 8, "a bounded number is read"
    assert (seen[0].record.step, seen[-1].record.step) == (1, num_steps)
    queue, prefill = spans_of(observer, num_packs)
    assert (queue.end_s, prefill.attributes["everystep.seats"]) == (num_steps, [1])
    told = queue.attributes["everystep.queue.cause_s"]
    assert sum(told) == pytest.approx(num_steps)  # type: ignore[arg-type]
    assert queue.attributes["everystep.queue.causes"] == ["arriving", "no_seat", "no_blocks"]
    assert told[1] == pytest.approx(num_steps / 2, abs=num_steps / (num_packs - 1))  # type: ignore[index]


def test_no_step_behind_the_first_seat_is_read_of_who_keeps_it(observer: Observer) -> None:
    """A thousand tokens cost no more to tell than one."""
    observer.accepted(submit("a", arrival_s=0.0))
    observer.step(output(1, rows=[row(0, "a", phase="prefill", new=3)], started=["a"]))
    for step in range(2, 1_000):
        observer.step(output(step, rows=[row(0, "a")]))
    observer.finished("a", FinishReason.LENGTH, 101.0)
    snapshot = observer.requests.waits("r", PACKS)
    assert snapshot is not None
    assert [step.record.step for step in snapshot.steps] == [1]


def _all(spans: tuple[SpanData, ...]) -> Iterator[SpanData]:
    for span in spans:
        yield span
        yield from _all(span.children)
