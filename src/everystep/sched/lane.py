"""What the three policies share: a line, the pool, the door, the events of a step, and their counters.

Owns no decision: who runs is each policy's own.
"""

from __future__ import annotations

from everystep.errors import ConfigError
from everystep.sched.admission import check_fits
from everystep.sched.blocks import BlockPool
from everystep.sched.line import Line
from everystep.sched.progress import advance
from everystep.types import FinishReason, Row, Sequence, StepPlan, StepResult, TokenEvent, WaitCause, Waiting


class Lane:
    """A waiting line before some seats.  A policy adds ``plan`` and what happens to the seat of one who ended."""

    name = ""

    def __init__(self, num_seats: int, pool: BlockPool | None, max_model_len: int | None, ageing_s: float) -> None:
        if num_seats < 1:
            raise ConfigError(f"{self.name or 'a lane'} needs at least one seat, got {num_seats}")
        self.num_seats = num_seats
        self.pool = pool if pool is not None else BlockPool()
        self.max_model_len = max_model_len
        self.num_preemptions = 0
        self.num_prefix_hit_tokens = 0
        self.last_started: tuple[str, ...] = ()  # got a seat in the last plan, first or again
        self.last_preempted: tuple[str, ...] = ()  # lost theirs in the last plan
        self._line = Line(ageing_s)
        self._cause = WaitCause.NO_SEAT
        self._needs_blocks: int | None = None  # the head of the line, when it was last refused them
        self._sequences: dict[str, Sequence] = {}  # everybody here: waiting or seated, not ended

    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the line.  Raises :class:`PromptTooLong` if it can never fit."""
        check_fits(
            sequence.num_prompt_tokens,
            sequence.params.max_tokens,
            max_model_len=self.max_model_len,
            cache_tokens=self.pool.num_tokens,
        )
        self._sequences[sequence.sequence_id] = sequence
        self._line.add(sequence)

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        """End a sequence, waiting or seated, and free its blocks now.  False if it isn't here (any more)."""
        sequence = self._sequences.get(sequence_id)
        if sequence is None:
            return False
        sequence.finish_reason = reason
        if self._is_seated(sequence):
            self._leave(sequence)
        else:
            self._line.remove(sequence)
            self._forget(sequence)
        if not self._line:
            self.pool.unclaim(self)
        return True

    def has_work(self) -> bool:
        return bool(self._sequences)

    def ready_at_s(self) -> float | None:
        """When the lane will run without a message; only a policy that waits for company has such a time."""
        return None

    def why_waiting(self) -> tuple[Waiting, ...]:
        """Each waiting sequence with its cause as of the last plan; the same object while nothing changed."""
        return self._line.why_waiting(self._cause, self._needs_blocks if self._cause is WaitCause.NO_BLOCKS else None)

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Move the counters, end who ended, free seats and blocks.  Rows aborted since ``plan`` are skipped."""
        events = []
        for row in plan.rows:
            if row.sequence.finish_reason is not None:
                continue
            event = advance(row, result, self.pool.num_tokens)
            if event is not None:
                events.append(event)
            self._settle(row)
        return events

    def _is_seated(self, sequence: Sequence) -> bool:
        raise AssertionError("each policy knows its seats")

    def _settle(self, row: Row) -> None:
        """After the row's counters moved: who ended, leaves."""
        if row.sequence.finish_reason is not None:
            self._leave(row.sequence)

    def _leave(self, sequence: Sequence) -> None:
        """A seated sequence ended: its blocks are free now.  What becomes of the seat is the policy's."""
        self._forget(sequence)

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.sequence_id]
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []

    def _reserve_worst_case(self, sequence: Sequence) -> bool:
        """Blocks for all that the sequence may ever compute, or a claim on them.  The last token is never computed."""
        num_blocks = self.pool.blocks_for(sequence.max_total_tokens - 1)
        if num_blocks > self.pool.num_admittable(self):
            self._needs_blocks = num_blocks
            self.pool.claim(self, num_blocks)
            return False
        self.pool.unclaim(self)
        sequence.block_ids = self.pool.allocate(num_blocks)
        return True
