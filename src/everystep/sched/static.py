"""Static batching: fill a batch, run it until its longest member ends, refill.

Owns the waiting line, the seats and the rounds.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceABC

from everystep.errors import ConfigError
from everystep.sched.blocks import BlockPool
from everystep.sched.causes import Causes
from everystep.sched.door import check_fits
from everystep.sched.finish import advance
from everystep.sched.line import RankedLine
from everystep.sched.reservation import private_pool, release, try_reserve, worst_case_blocks
from everystep.types import FinishReason, Row, Sequence, StepPlan, StepResult, TokenEvent, WaitCause, Waiting


class StaticPolicy:
    """Rounds of up to ``batch_size`` sequences; who ended keeps its seat, and nobody boards midway.

    A round takes whatever is there, unless ``max_wait_s`` lets it wait until the batch is full or the sequence that
    came first has waited that long.  ``max_batch_tokens`` bounds the prompt tokens of a round; a prompt above it
    rides alone.  Every member reserves the blocks of its worst case, so that a round never lacks any.
    """

    name = "static"

    def __init__(
        self,
        batch_size: int = 4,
        *,
        pool: BlockPool | None = None,
        max_batch_tokens: int | None = None,
        max_wait_s: float = 0.0,
        max_model_len: int | None = None,
        ageing_s: float = 10.0,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size} must be at least 1", param="batch_size")
        self.num_seats = batch_size
        self.pool = private_pool(batch_size, max_model_len) if pool is None else pool
        self.last_started: tuple[str, ...] = ()
        self.last_preempted: tuple[str, ...] = ()
        self.num_preemptions = 0
        self.num_prefix_hit_tokens = 0
        self._max_batch_tokens = max_batch_tokens
        self._max_wait_s = max_wait_s
        self._max_model_len = max_model_len
        self._line = RankedLine(ageing_s)
        self._causes = Causes(self._line)
        self._round: list[Sequence] = []  # by seat; empty between rounds
        self._ready_at_s: float | None = None

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
        """End a sequence and free its blocks now; a member of the round leaves its seat held.  False if not here."""
        sequence = self._line.remove(sequence_id) or self._find_working(sequence_id)
        if sequence is None:
            return False
        sequence.finish_reason = reason
        release(self.pool, sequence)
        self._close_round_if_over()
        if not self._line:
            self.pool.claims.drop(self)
        return True

    def has_work(self) -> bool:
        return bool(self._line or self._round)

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def num_seated(self) -> int:
        """Sequences with a seat that haven't ended."""
        return sum(1 for _ in self._working())

    # --- stepping --------------------------------------------------------------------------------
    def plan(self, now_s: float) -> StepPlan:
        """The round's members that haven't ended; a new round where none runs."""
        self.last_started = ()
        self._causes.why = WaitCause.ROUND_RUNNING
        if not self._round:
            self._form_round(now_s)
        rows, held = [], []
        for seat, sequence in enumerate(self._round):
            if sequence.is_finished:
                held.append(Row(sequence, seat, sequence.num_computed_tokens, 0))
            else:
                rows.append(Row(sequence, seat, sequence.num_computed_tokens, sequence.num_uncomputed_tokens))
        return StepPlan(self.name, tuple(rows), tuple(held))

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Move the counters; free the blocks of who ended, and the seats if it was the last."""
        events = []
        for row in plan.rows:
            if row.sequence.is_finished:
                continue
            if (event := advance(row, result, self.pool.num_tokens)) is not None:
                events.append(event)
            if row.sequence.is_finished:
                release(self.pool, row.sequence)
        self._close_round_if_over()
        return events

    def why_waiting(self) -> SequenceABC[Waiting]:
        """Each waiting sequence with its cause as of the last plan, first in line first."""
        return self._causes.tell()

    def ready_at_s(self) -> float | None:
        """When the round that waits for company starts without it."""
        return self._ready_at_s if self._line else None

    # --- rounds ----------------------------------------------------------------------------------
    def _form_round(self, now_s: float) -> None:
        """Take from the head of the line what is there and fits; who doesn't fit holds up those behind."""
        self._ready_at_s = self._company_deadline_s(now_s)
        if self._ready_at_s is not None:
            self._causes.why = WaitCause.NO_SEAT  # the batch opens its seats when it starts
            return
        num_tokens = 0
        while self._line and len(self._round) < self.num_seats:
            sequence = self._line.head
            num_tokens += sequence.num_prompt_tokens
            if (why := self._try_board(sequence, num_tokens)) is not None:
                self._causes.why = why
                break
        self.last_started = tuple(sequence.sequence_id for sequence in self._round)
        if self._round or not self._line:
            self.pool.claims.drop(self)
        else:
            self.pool.claims.put(self, worst_case_blocks(self.pool, self._line.head))

    def _try_board(self, sequence: Sequence, num_tokens: int) -> WaitCause | None:
        """Seat the head of the line, or say why not.  ``num_tokens`` are the round's prompt tokens with it."""
        if self._round and self._max_batch_tokens is not None and num_tokens > self._max_batch_tokens:
            return WaitCause.NO_BUDGET
        if not try_reserve(self.pool, self, sequence):
            return WaitCause.NO_BLOCKS
        self._round.append(self._line.pop_head())
        return None

    def _company_deadline_s(self, now_s: float) -> float | None:
        """Until when the next round waits for more sequences; ``None`` if it needn't (any longer)."""
        if not self._line or self._max_wait_s <= 0 or len(self._line) >= self.num_seats:
            return None
        num_tokens = sum(sequence.num_prompt_tokens for sequence in self._line)
        if self._max_batch_tokens is not None and num_tokens >= self._max_batch_tokens:
            return None
        deadline_s = min(sequence.arrival_s for sequence in self._line) + self._max_wait_s
        return deadline_s if now_s < deadline_s else None

    def _close_round_if_over(self) -> None:
        if all(sequence.is_finished for sequence in self._round):
            self._round = []

    def _working(self) -> Iterator[Sequence]:
        return (sequence for sequence in self._round if not sequence.is_finished)

    def _find_working(self, sequence_id: str) -> Sequence | None:
        return next((sequence for sequence in self._working() if sequence.sequence_id == sequence_id), None)
