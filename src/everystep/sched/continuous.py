"""Continuous batching: at every token, look at the line, and fill a token budget with whoever needs what.

Owns the waiting line, the running sequences, admission and preemption.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceABC

from everystep.errors import ConfigError
from everystep.sched.blocks import BlockPool
from everystep.sched.causes import Causes
from everystep.sched.door import check_fits
from everystep.sched.finish import advance
from everystep.sched.line import RankedLine
from everystep.sched.prefix import PrefixKeys
from everystep.sched.reservation import private_pool, release
from everystep.sched.seats import Seats
from everystep.types import FinishReason, Row, Sequence, StepPlan, StepResult, TokenEvent, WaitCause, Waiting

# An admission leaves a free block for every so many running rows, so that it isn't taken back at their next growth:
# with blocks of 32 tokens that is room for about 8 steps.
RUNNING_ROWS_A_SPARE_BLOCK = 4


class ContinuousPolicy:
    """Running rows first, one token each; then chunks of prompts; then admissions by rank while budget lasts.

    Blocks are taken as texts grow.  When they run out, the running sequence of the worst rank gives its own back and
    waits again, to be recomputed.  Full blocks of equal beginnings are shared.
    """

    name = "continuous"

    def __init__(
        self,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        *,
        pool: BlockPool | None = None,
        max_model_len: int | None = None,
        ageing_s: float = 10.0,
    ) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens={max_num_batched_tokens} is below max_num_seqs={max_num_seqs}: "
                "every decoding row needs one token of the budget",
                param="max_num_batched_tokens",
            )
        self.num_seats = max_num_seqs
        self.pool = private_pool(max_num_seqs, max_model_len) if pool is None else pool
        self.last_started: tuple[str, ...] = ()
        self.last_preempted: tuple[str, ...] = ()
        self.num_preemptions = 0
        self.num_prefix_hit_tokens = 0
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_model_len = max_model_len
        self._waiting = RankedLine(ageing_s)
        self._running = RankedLine(ageing_s)
        self._causes = Causes(self._waiting)
        self._seats = Seats(max_num_seqs)
        self._keys = PrefixKeys(self.pool.block_size)

    # --- coming and going ------------------------------------------------------------------------
    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the waiting line.  Raises :class:`PromptTooLong` if it can never fit."""
        check_fits(
            sequence.num_prompt_tokens,
            sequence.params.max_tokens,
            num_cache_tokens=self.pool.num_tokens,
            max_model_len=self._max_model_len,
        )
        self._waiting.add(sequence)

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        """End a sequence, waiting or running, and free its seat and blocks now.  False if it isn't here."""
        if (sequence := self._waiting.remove(sequence_id)) is not None:
            if not self._waiting:
                self.pool.claims.drop(self)
        elif (sequence := self._running.remove(sequence_id)) is not None:
            self._vacate(sequence)
        else:
            return False
        sequence.finish_reason = reason
        self._keys.forget(sequence_id)
        return True

    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_seated(self) -> int:
        return len(self._running)

    # --- stepping --------------------------------------------------------------------------------
    def plan(self, now_s: float) -> StepPlan:
        """Who computes how many tokens: decoding rows, chunks of prompts, admissions."""
        self.last_preempted = tuple(self._grow())
        rows = self._running_rows()
        self.last_started = tuple(self._admit(rows))
        return StepPlan(self.name, tuple(rows))

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Move the counters; publish full blocks; free the seats and blocks of who ended."""
        events = []
        for row in plan.rows:
            sequence = row.sequence
            if sequence.finish_reason is not None:
                continue
            if (event := advance(row, result, self.pool.num_tokens)) is not None:
                events.append(event)
            if sequence.finish_reason is not FinishReason.FAILED:
                self._publish(row)
            if sequence.finish_reason is not None:
                self._running.remove(sequence.sequence_id)
                self._vacate(sequence)
                self._keys.forget(sequence.sequence_id)
        return events

    def why_waiting(self) -> SequenceABC[Waiting]:
        """Each waiting sequence with its cause as of the last plan, first in line first."""
        return self._causes.tell()

    def ready_at_s(self) -> float | None:
        """Never by itself: who can be admitted, is admitted at once."""
        return None

    # --- running rows ----------------------------------------------------------------------------
    def _grow(self) -> list[str]:
        """Give who has outgrown its blocks one more, best rank first, at the expense of the worst.

        Ids of the preempted.  A prompt got all its blocks when it was admitted, so only decoding rows grow.  The
        best-ranked sequence preempts itself only if other lanes hold the blocks it lacks.
        """
        block_size = self.pool.block_size
        growing = [seq for seq in self._running if len(seq.token_ids) > len(seq.block_ids) * block_size]
        preempted: list[str] = []
        for sequence in growing:
            while not self.pool.num_free_blocks and sequence.sequence_id in self._running:
                preempted.append(self._preempt_tail())
            if sequence.sequence_id not in self._running:
                break  # all that follow rank behind it, so they are out as well
            sequence.block_ids += self.pool.allocate(1)
        return preempted

    def _preempt_tail(self) -> str:
        """Send the running sequence of the worst rank back to the line, its tokens kept, its cache given up."""
        sequence = self._running.pop_tail()
        self._vacate(sequence)
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.add(sequence, before_equals=True)
        return sequence.sequence_id

    def _running_rows(self) -> list[Row]:
        """Rows that decode, then chunks of texts that are still being read, within the budget.

        There are at least as many tokens in the budget as seats, so decoding rows always fit and leave some.
        """
        rows: list[Row] = []
        reading: list[Sequence] = []
        for sequence in self._running:
            start = sequence.num_computed_tokens
            if len(sequence.token_ids) - start == 1:
                rows.append(Row(sequence, self._seats[sequence.sequence_id], start, 1))
            else:
                reading.append(sequence)
        budget = self._max_num_batched_tokens - len(rows)
        for sequence in reading:
            if not budget:
                break
            rows.append(self._chunk(sequence, budget))
            budget -= rows[-1].num_new_tokens
        return rows

    def _chunk(self, sequence: Sequence, budget: int) -> Row:
        num_new_tokens = min(sequence.num_uncomputed_tokens, budget)
        return Row(sequence, self._seats[sequence.sequence_id], sequence.num_computed_tokens, num_new_tokens)

    # --- admission -------------------------------------------------------------------------------
    def _admit(self, rows: list[Row]) -> list[str]:
        """Append rows for those at the head of the line who fit.  Ids of who sits for the first time."""
        budget = self._max_num_batched_tokens - sum(row.num_new_tokens for row in rows)
        started: list[str] = []
        why: WaitCause | None = None
        while self._waiting and (why := self._why_not(self._waiting.head, budget)) is None:
            sequence = self._waiting.pop_head()
            self._seats.take(sequence.sequence_id)
            self._running.add(sequence)
            rows.append(self._chunk(sequence, budget))
            budget -= rows[-1].num_new_tokens
            if not sequence.num_preemptions:
                started.append(sequence.sequence_id)
        # Where nobody is left, who comes during the step finds it given away.
        self._causes.why = why or (WaitCause.NO_BUDGET if self._seats.num_free else WaitCause.NO_SEAT)
        if why is not WaitCause.NO_BLOCKS:
            self.pool.claims.drop(self)
        return started

    def _why_not(self, sequence: Sequence, budget: int) -> WaitCause | None:
        """Why the head of the line can't be admitted; if it can, it has its blocks."""
        if self.last_preempted:
            return WaitCause.NO_BLOCKS  # what a preemption freed is for those who run
        if not self._seats.num_free:
            return WaitCause.NO_SEAT
        if not budget:
            return WaitCause.NO_BUDGET
        return None if self._try_take_blocks(sequence) else WaitCause.NO_BLOCKS

    def _try_take_blocks(self, sequence: Sequence) -> bool:
        """Share the known beginning and take free blocks for the rest and one token more; claim them if they lack."""
        pool = self.pool
        shared = self._match_prefix(sequence)
        num_new = pool.blocks_for(sequence.num_tokens + 1) - len(shared)
        num_spare = len(self._running) // RUNNING_ROWS_A_SPARE_BLOCK
        num_wanted = num_new + pool.num_free_among(shared) + num_spare
        if num_wanted > pool.num_free_for(self):
            pool.claims.put(self, min(num_wanted, pool.num_blocks))
            return False
        pool.claims.drop(self)
        pool.share(shared)
        sequence.block_ids = shared + pool.allocate(num_new)
        sequence.num_computed_tokens = len(shared) * pool.block_size
        if not sequence.num_preemptions:
            sequence.num_cached_tokens = sequence.num_computed_tokens
            self.num_prefix_hit_tokens += sequence.num_computed_tokens
        return True

    # --- blocks ----------------------------------------------------------------------------------
    def _match_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks that hold the text's beginning already; its last token is computed in any case, to sample from."""
        if not self.pool.prefix_cache:
            return []
        num_full_blocks = (sequence.num_tokens - 1) // self.pool.block_size
        return self.pool.match_prefix(self._keys.first(sequence, num_full_blocks))

    def _publish(self, row: Row) -> None:
        """Let others find the blocks that this step filled."""
        first, end = row.start // self.pool.block_size, row.end // self.pool.block_size
        if first == end or not self.pool.prefix_cache:
            return
        keys = self._keys.first(row.sequence, end)
        for index in range(first, end):
            self.pool.publish(row.sequence.block_ids[index], keys[index])

    def _vacate(self, sequence: Sequence) -> None:
        self._seats.leave(sequence.sequence_id)
        release(self.pool, sequence)
