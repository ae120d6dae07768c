"""From a plan and what came of it to the step's record: who sat where, who waited and why.

Owns the encoding of step records, in the worker.  Built to be always on: rows are packed once, an unchanged line
not at all.  Ignorant of clocks and of what decided.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceABC
from operator import attrgetter

import msgspec

from everystep.messages import StepOutput, StepRecord, StepRow, StepSummary
from everystep.observe.line_codec import encode_line
from everystep.types import FinishReason, Policy, Row, StepPlan, TokenEvent, Waiting

_encoder = msgspec.msgpack.Encoder()
_by_seat = attrgetter("seat")


class RecordBuilder:
    """Remembers what each lane last said of its line, and its counters, to say only what changed."""

    def __init__(self) -> None:
        self._last_waiting: dict[str, tuple[Waiting, ...]] = {}
        self._last_counts: dict[str, tuple[int, int]] = {}
        self._unsaid: dict[str, tuple[str, ...]] = {}  # lane → preempted by plans that made no step

    def carry_over(self, lane: Policy) -> None:
        """The lane's plan came to no step: its preemptions are told with the lane's next one."""
        self._unsaid[lane.name] = self._unsaid.get(lane.name, ()) + lane.last_preempted

    def build(
        self,
        *,
        step: int,
        lane: Policy,
        plan: StepPlan,
        waiting: tuple[Waiting, ...],
        events: SequenceABC[TokenEvent],
        start_s: float,
        end_s: float,
        blocks_used: int,
        blocks_after: int,
        blocks_total: int,
    ) -> StepOutput:
        """The step as it crosses to the API process.  Blocks: in use while it ran, and once it is applied."""
        record = StepRecord(
            step, plan.policy, start_s, end_s, _shape(plan), _rows(plan, events), blocks_used, blocks_total
        )
        return StepOutput(
            self._summary(record, lane, plan, len(waiting), blocks_after),
            _encoder.encode(record),
            self._encode_waiting(plan.policy, waiting),
            lane.last_started,
            self._unsaid.pop(lane.name, ()) + lane.last_preempted,
            tuple(events),
        )

    def _summary(
        self, record: StepRecord, lane: Policy, plan: StepPlan, num_waiting: int, blocks_after: int
    ) -> StepSummary:
        num_preemptions, num_hit_tokens = self._count_since(lane)
        return StepSummary(
            step=record.step,
            policy=record.policy,
            start_s=record.start_s,
            end_s=record.end_s,
            num_working=len(plan.rows),
            num_held=len(plan.held),
            num_empty=lane.num_seats - len(plan.rows) - len(plan.held),
            num_new_tokens=plan.num_new_tokens,
            num_waiting=num_waiting,
            num_preemptions=num_preemptions,
            num_prefix_hit_tokens=num_hit_tokens,
            blocks_used=blocks_after,
            blocks_total=record.blocks_total,
        )

    def _count_since(self, lane: Policy) -> tuple[int, int]:
        now = (lane.num_preemptions, lane.num_prefix_hit_tokens)
        before = self._last_counts.get(lane.name, (0, 0))
        self._last_counts[lane.name] = now
        return now[0] - before[0], now[1] - before[1]

    def _encode_waiting(self, policy: str, waiting: tuple[Waiting, ...]) -> bytes | None:
        """``None`` where the lane gave the very object that it gave before."""
        if self._last_waiting.get(policy) is waiting:
            return None
        self._last_waiting[policy] = waiting
        return encode_line(waiting)


def _shape(plan: StepPlan) -> tuple[int, int]:
    return len(plan.rows), max((row.num_new_tokens for row in plan.rows), default=0)


def _rows(plan: StepPlan, events: SequenceABC[TokenEvent]) -> tuple[StepRow, ...]:
    """Rows by seat."""
    finishes = {event.sequence_id: event.finish_reason for event in events if event.finish_reason is not None}
    rows = [_row(row, _phase(row), finishes.get(row.sequence.sequence_id)) for row in plan.rows]
    if plan.held:
        rows += [_row(row, "held", None) for row in plan.held]
    rows.sort(key=_by_seat)
    return tuple(rows)


def _phase(row: Row) -> str:
    """A row reads a prompt as long as it starts inside it."""
    return "prefill" if row.start < row.sequence.num_prompt_tokens else "decode"


def _row(row: Row, phase: str, finish: FinishReason | None) -> StepRow:
    sequence = row.sequence
    return StepRow(row.seat, sequence.sequence_id, sequence.request_id, phase, row.num_new_tokens, row.end, finish)
