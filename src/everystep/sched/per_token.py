"""Batching by the token: before every step, fill the free seats from the line.

Owns the waiting line and a fixed number of seats.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceABC

from everystep.sched.blocks import BlockPool
from everystep.sched.causes import Causes
from everystep.sched.door import check_fits
from everystep.sched.finish import advance
from everystep.sched.line import RankedLine
from everystep.sched.reservation import private_pool, release, try_reserve, worst_case_blocks
from everystep.sched.seats import Seats
from everystep.types import FinishReason, Row, Sequence, StepPlan, StepResult, TokenEvent, WaitCause, Waiting


class PerTokenPolicy:
    """A batch of fixed width, regrouped at every token.

    Prompts are read whole, whatever their length: no token budget, no preemption, no shared prefixes.  Everybody
    seated has the blocks of its worst case.  ``max_batch_tokens`` bounds the known tokens of all who sit when one
    more sits down; a sequence above it sits alone.  ``reuse_cache=False`` reads the whole text again at every step,
    as the naive loop does.
    """

    name = "per_token"

    def __init__(
        self,
        batch_size: int = 4,
        *,
        pool: BlockPool | None = None,
        reuse_cache: bool = True,
        max_batch_tokens: int | None = None,
        max_model_len: int | None = None,
        ageing_s: float = 10.0,
    ) -> None:
        self.num_seats = batch_size
        self.pool = private_pool(batch_size, max_model_len) if pool is None else pool
        self.last_started: tuple[str, ...] = ()
        self.last_preempted: tuple[str, ...] = ()
        self.num_preemptions = 0
        self.num_prefix_hit_tokens = 0
        self._reuse_cache = reuse_cache
        self._max_batch_tokens = max_batch_tokens
        self._max_model_len = max_model_len
        self._line = RankedLine(ageing_s)
        self._causes = Causes(self._line)
        self._seats = Seats(batch_size)
        self._seated: dict[str, Sequence] = {}

    # --- coming and going ------------------------------------------------------------------------
    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the waiting line.  Raises :class:`PromptTooLong` if it can never fit."""
        check_fits(
            sequence.num_prompt_tokens,
            sequence.params.max_tokens,
            num_cache_tokens=self.pool.num_tokens,
            max_model_len=self._max_model_len,
        )
        self._line.add(sequence)

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        """End a sequence, waiting or seated, and free its seat and blocks now.  False if it isn't here."""
        if (sequence := self._line.remove(sequence_id)) is not None:
            if not self._line:
                self.pool.claims.drop(self)
        elif (sequence := self._seated.get(sequence_id)) is not None:
            self._leave(sequence)
        else:
            return False
        sequence.finish_reason = reason
        return True

    def has_work(self) -> bool:
        return bool(self._line or self._seated)

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def num_seated(self) -> int:
        return len(self._seated)

    # --- stepping --------------------------------------------------------------------------------
    def plan(self, now_s: float) -> StepPlan:
        """Everybody seated, after the free seats were filled."""
        self.last_started = tuple(self._fill_seats())
        rows = [
            Row(sequence, self._seats[sequence_id], sequence.num_computed_tokens, sequence.num_uncomputed_tokens)
            for sequence_id, sequence in self._seated.items()
        ]
        return StepPlan(self.name, tuple(rows))

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Move the counters; free the seats and blocks of who ended."""
        events = []
        for row in plan.rows:
            sequence = row.sequence
            if sequence.is_finished:
                continue
            if (event := advance(row, result, self.pool.num_tokens)) is not None:
                events.append(event)
            if sequence.is_finished:
                self._leave(sequence)
            elif not self._reuse_cache:
                sequence.num_computed_tokens = 0
        return events

    def why_waiting(self) -> SequenceABC[Waiting]:
        """Each waiting sequence with its cause as of the last plan, first in line first."""
        return self._causes.tell()

    def ready_at_s(self) -> float | None:
        """Never by itself: who can sit, sits at once."""
        return None

    # --- seats -----------------------------------------------------------------------------------
    def _fill_seats(self) -> list[str]:
        """Seat from the head of the line who fits; who doesn't holds up those behind.  Ids of who sat down."""
        started: list[str] = []
        while self._line and (why := self._why_not(self._line.head)) is None:
            sequence = self._line.pop_head()
            self._seats.take(sequence.sequence_id)
            self._seated[sequence.sequence_id] = sequence
            started.append(sequence.sequence_id)
        if not self._line:
            # Nobody is left; who comes during the step finds it given away.
            why = WaitCause.NO_BUDGET if self._seats.num_free else WaitCause.NO_SEAT
        self._causes.why = why or WaitCause.NO_SEAT
        if why is WaitCause.NO_BLOCKS:
            self.pool.claims.put(self, worst_case_blocks(self.pool, self._line.head))
        else:
            self.pool.claims.drop(self)
        return started

    def _why_not(self, sequence: Sequence) -> WaitCause | None:
        """Why the head of the line can't sit down; if it can, its blocks are reserved."""
        if not self._seats.num_free:
            return WaitCause.NO_SEAT
        if self._is_over_tokens(sequence):
            return WaitCause.NO_BUDGET
        if not try_reserve(self.pool, self, sequence):
            return WaitCause.NO_BLOCKS
        return None

    def _is_over_tokens(self, sequence: Sequence) -> bool:
        if self._max_batch_tokens is None or not self._seated:
            return False
        num_tokens = sum(seated.num_tokens for seated in self._seated.values())
        return num_tokens + sequence.num_tokens > self._max_batch_tokens

    def _leave(self, sequence: Sequence) -> None:
        del self._seated[sequence.sequence_id]
        self._seats.leave(sequence.sequence_id)
        release(self.pool, sequence)
