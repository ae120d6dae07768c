"""One step as two witnesses tell it: the recording, and the core that replays it.

Owns what counts as the same step: lane, seats, starts and counts, blocks, who lost a seat, tokens, ends.  Not the time
that the pass took, nor a token's log-probability.  Ignorant of how either came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from everystep.messages import StepOutput, StepRecord
from everystep.observe.schedule import Planned, Stepped

_decoder = msgspec.msgpack.Decoder(StepRecord)


@dataclass(frozen=True, slots=True)
class SeatRow:
    """A seat of one step.  A held row has no new tokens, and its start isn't looked at."""

    seat: int
    sequence_id: str
    start: int
    num_new_tokens: int

    def __str__(self) -> str:
        return f"seat {self.seat}: {self.sequence_id}, {self.num_new_tokens} from {self.start}"


@dataclass(frozen=True, slots=True)
class HeldSeat:
    """A finished sequence that keeps its seat."""

    seat: int
    sequence_id: str

    def __str__(self) -> str:
        return f"seat {self.seat}: {self.sequence_id}"


@dataclass(frozen=True, slots=True)
class Said:
    """What clients were told of one sequence: a token, or its end."""

    sequence_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.sequence_id}: {self.what}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A step, as far as it is compared.  Rows and held seats by seat, what was said in the order of the plan."""

    step: int
    lane: str
    rows: tuple[SeatRow, ...]
    held: tuple[HeldSeat, ...]
    blocks: int
    preempted: tuple[str, ...]
    tokens: tuple[Said, ...]
    ends: tuple[Said, ...]

    PLANNED: ClassVar[tuple[str, ...]] = ("step", "lane", "rows", "held", "blocks")
    COMPARED: ClassVar[tuple[str, ...]] = (*PLANNED, "preempted", "tokens", "ends")


def recorded(plan: Planned, result: Stepped | None, ids: Sequence[str]) -> Seen:
    """A recorded step.

    ``ids`` are sequence ids by number; ``result`` is ``None`` where the process ended in the pass.
    """
    rows = [SeatRow(row.seat, ids[row.n], row.start, row.num_new_tokens) for row in plan.rows]
    held = [HeldSeat(row.seat, ids[row.n]) for row in plan.held]
    result = result or Stepped(plan.now_s)
    return Seen(
        step=plan.step,
        lane=plan.lane,
        rows=tuple(sorted(rows, key=lambda row: row.seat)),
        held=tuple(sorted(held, key=lambda row: row.seat)),
        blocks=plan.blocks,
        preempted=result.preempted,
        tokens=tuple([Said(ids[token.n], str(token.token_id)) for token in result.tokens]),
        ends=tuple([Said(ids[end.n], _end(end.reason, end.error)) for end in result.ends]),
    )


def replayed(output: StepOutput) -> Seen:
    """The same of a step that a core has just made."""
    record = _decoder.decode(output.record)
    working = [row for row in record.rows if row.phase != "held"]
    return Seen(
        step=record.step,
        lane=record.policy,
        rows=tuple(
            [SeatRow(row.seat, row.sequence_id, row.context_tokens - row.new_tokens, row.new_tokens) for row in working]
        ),
        held=tuple([HeldSeat(row.seat, row.sequence_id) for row in record.rows if row.phase == "held"]),
        blocks=record.blocks_used,
        preempted=output.preempted,
        tokens=tuple([Said(event.sequence_id, str(event.token.token_id)) for event in output.events if event.token]),
        ends=tuple(
            [
                Said(event.sequence_id, _end(event.finish_reason, event.error))
                for event in output.events
                if event.finish_reason is not None
            ]
        ),
    )


def first_difference(expected: Seen, actual: Seen, *, is_whole: bool) -> tuple[str, str, str] | None:
    """Name, expected and actual, in words, of what isn't the same first; ``is_whole`` looks at results too."""
    for name in Seen.COMPARED if is_whole else Seen.PLANNED:
        ours, theirs = getattr(expected, name), getattr(actual, name)
        if ours != theirs:
            return name, _only_in(ours, theirs), _only_in(theirs, ours)
    return None


def _only_in(these: Any, those: Any) -> str:
    """What of these isn't in those: of 64 rows one wants to see the two that differ."""
    if not isinstance(these, tuple):
        return str(these)
    if sorted(map(str, these)) == sorted(map(str, those)):
        return f"in this order: {_listed(these)}"
    return _listed(item for item in these if item not in those) + _and_equal(sum(item in those for item in these))


def _listed(items: Iterable[object]) -> str:
    return "; ".join(map(str, items)) or "nothing"


def _and_equal(num: int) -> str:
    return f" (and {num} that agree)" if num else ""


def _end(reason: str, error: str | None) -> str:
    return f"{reason} ({error})" if error else str(reason)
