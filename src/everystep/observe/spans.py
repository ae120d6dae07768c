"""A request's life as spans: for each of its sequences the waiting, the reading of the prompt, the generating.

Owns which spans there are, their times and what they say.  Told everything, the steps included; knows no clock but the
server's, no tracing library, and neither prompts nor texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everystep.observe.request_log import RequestSnapshot
from everystep.observe.sequence_life import SequenceLife

QUEUE, PREFILL, DECODE, SEQUENCE = "queue", "prefill", "decode", "sequence"
MAX_SEQUENCES = 32  # of one request that have spans of their own: four each, of a bounded queue
SAME_MOMENT_S = 2e-6  # causes are told in whole microseconds

Value = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]


@dataclass(frozen=True, slots=True)
class SpanData:
    """One span.  Times in seconds since the server's start."""

    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, Value]
    children: tuple[SpanData, ...] = ()


@dataclass(slots=True)
class _Wait:
    """A time without a seat, and what it was spent with."""

    start_s: float
    end_s: float
    cause_s: dict[str, float] = field(default_factory=dict)  # by cause, in order of first appearance

    def add(self, why: str, start_s: float, end_s: float) -> None:
        self.end_s = max(self.end_s, end_s)
        self.cause_s[why] = self.cause_s.get(why, 0.0) + end_s - start_s

    def as_span(self, *, is_preempted: bool) -> SpanData:
        attributes: dict[str, Value] = {
            "everystep.queue.causes": list(self.cause_s),
            "everystep.queue.cause_s": [round(seconds, 6) for seconds in self.cause_s.values()],
        }
        if is_preempted:
            attributes["everystep.queue.is_preempted"] = True
        return SpanData(QUEUE, self.start_s, self.end_s, attributes)


def tell_spans(snapshot: RequestSnapshot) -> tuple[SpanData, ...]:
    """The children of an ended request's span: the phases of its sequence, or of several a span each with its phases.

    Reads the snapshot's steps, so it may be called once.
    """
    stories = snapshot.tell(max(_end_s(life) for life in snapshot.lives))["sequences"]
    told = list(zip(snapshot.lives, stories, strict=True))[:MAX_SEQUENCES]
    if len(snapshot.lives) == 1:
        return _phases(*told[0])
    return tuple(_sequence(index, life, story) for index, (life, story) in enumerate(told))


def seats_of(spans: Sequence[SpanData]) -> list[int]:
    """The seats that the spans name, each once, in order."""
    seats: dict[int, None] = {}
    for span in spans:
        own = span.attributes.get("everystep.seats", ())
        assert not isinstance(own, str | bool | int | float)
        seats |= dict.fromkeys([*map(int, own), *seats_of(span.children)])
    return list(seats)


def _end_s(life: SequenceLife) -> float:
    assert life.finish_s is not None, "a span is told at its end"
    return life.finish_s


def _seated_s(life: SequenceLife) -> float | None:
    """When it first sat.  Who ended within its first pass has no first step, but had a seat."""
    return life.first_step_s if life.first_step_s is not None else life.seated_s


def _sequence(index: int, life: SequenceLife, story: Mapping[str, Any]) -> SpanData:
    attributes: dict[str, Value] = {
        "everystep.sequence.index": index,
        "everystep.sequence.id": life.sequence_id,
        "everystep.finish_reason": str(life.finish_reason),
        "everystep.num_preemptions": life.num_preemptions,
    }
    return SpanData(SEQUENCE, life.arrival_s, _end_s(life), attributes, _phases(life, story))


def _phases(life: SequenceLife, story: Mapping[str, Any]) -> tuple[SpanData, ...]:
    """They follow each other without a gap, from the arrival to the end; one that never began isn't there."""
    end_s = _end_s(life)
    first, *later = _waits(life, story)
    spans = [first.as_span(is_preempted=False)]
    if _seated_s(life) is not None:
        read_s = life.first_token_s if life.first_token_s is not None else end_s
        seats = {"everystep.seats": story["seats"]} if story["seats"] else {}
        waits = [wait.as_span(is_preempted=True) for wait in later]
        prompt = {"everystep.prompt_tokens": life.num_prompt_tokens, **seats}
        spans.append(_phase(PREFILL, first.end_s, read_s, prompt, waits))
        if life.first_token_s is not None:
            output = {"everystep.output_tokens": life.num_output_tokens, **seats}
            spans.append(_phase(DECODE, read_s, end_s, output, waits))
    return tuple(spans)


def _phase(
    name: str, start_s: float, end_s: float, attributes: Mapping[str, Value], waits: Sequence[SpanData]
) -> SpanData:
    """A preempted sequence waits in the midst of a phase."""
    inside = tuple(wait for wait in waits if start_s <= wait.start_s < end_s)
    return SpanData(name, start_s, max(start_s, end_s), attributes, inside)


def _waits(life: SequenceLife, story: Mapping[str, Any]) -> list[_Wait]:
    """The wait for the first seat, then one for each time that the sequence lost its seat."""
    told_s = _seated_s(life)
    seated_s = _end_s(life) if told_s is None else max(life.arrival_s, told_s)
    waits = [_Wait(life.arrival_s, seated_s)]
    for cause in story["queue"]:
        start_s, end_s = cause["from_s"], cause["from_s"] + cause["duration_s"]
        if start_s < seated_s - SAME_MOMENT_S:
            waits[0].add(cause["why"], start_s, min(end_s, seated_s))
            continue
        if len(waits) == 1 or start_s > waits[-1].end_s + SAME_MOMENT_S:
            waits.append(_Wait(start_s, start_s))
        waits[-1].add(cause["why"], start_s, end_s)
    return waits
