"""Continuous batching: the line is looked at before every step, and a seat that frees is filled at once.

Owns seats, token budget, admission by prefix, and preemption by recompute.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush

from everystep.errors import ConfigError
from everystep.sched.blocks import BlockPool
from everystep.sched.lane import Lane
from everystep.sched.prefix import PrefixKeys
from everystep.types import FinishReason, Row, Sequence, StepPlan, WaitCause

# An admission leaves a free block for every so many running rows, or their growth would take its own back at once:
# with blocks of 32 tokens that is room for about 8 steps.
RUNNING_ROWS_A_SPARE_BLOCK = 4


class ContinuousPolicy(Lane):
    """Up to ``max_num_seqs`` rows and ``max_num_batched_tokens`` new tokens a step.

    Decoding rows come first, one token each, so that no prompt delays them by more than one budgeted step; then
    chunks of prompts being read; then admissions in order of rank.  A sequence is admitted when its known tokens
    find blocks (shared ones first), and grows on demand.  When no block is left the lowest-ranked running sequence
    gives all of its blocks back and waits again.
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
        super().__init__(max_num_seqs, pool, max_model_len, ageing_s)
        if max_num_batched_tokens < max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens={max_num_batched_tokens} is below max_num_seqs={max_num_seqs}: "
                "every decoding row needs one token of the budget",
                param="max_num_batched_tokens",
            )
        self.max_num_batched_tokens = max_num_batched_tokens
        self._seats: dict[str, int] = {}  # sequence id → seat
        self._running: list[Sequence] = []  # by rank, best first
        self._free_seats = list(range(max_num_seqs))
        heapify(self._free_seats)
        self._keys = PrefixKeys(self.pool.block_size)

    def plan(self, now_s: float) -> StepPlan:
        """Make room for everybody's next token, then spend the budget: decodes, chunks, admissions."""
        self.last_preempted = self._make_room()
        rows: list[Row] = []
        reading: list[Sequence] = []
        for sequence in self._running:
            start = sequence.num_computed_tokens
            if len(sequence.token_ids) - start == 1:
                rows.append(Row(sequence, self._seats[sequence.sequence_id], start, 1))
            else:
                reading.append(sequence)
        budget = self.max_num_batched_tokens - len(rows)
        for sequence in reading:
            if not budget:
                break
            rows.append(self._chunk(sequence, budget))
            budget -= rows[-1].num_new_tokens
        admitted = self._admit(budget)
        self.last_started = tuple(row.sequence.sequence_id for row in admitted)
        return StepPlan(self.name, (*rows, *admitted))

    # --- blocks ----------------------------------------------------------------------------------
    def _make_room(self) -> tuple[str, ...]:
        """A block for each running sequence whose next token begins one; the lowest-ranked pay for the others."""
        size = self.pool.block_size
        lacking = [sequence for sequence in self._running if len(sequence.block_ids) * size < len(sequence.token_ids)]
        preempted: list[str] = []
        for sequence in lacking:
            while self._is_seated(sequence) and not self.pool.num_free_blocks:
                preempted.append(self._preempt(self._running[-1]))
            if not self._is_seated(sequence):
                break  # those that follow rank behind it and are out as well
            sequence.block_ids += self.pool.allocate(1)
        return tuple(preempted)

    def _preempt(self, sequence: Sequence) -> str:
        """Take seat and blocks; its tokens stay, and its rank puts it before later arrivals."""
        self._unseat(sequence)
        self.pool.release(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._line.put_back(sequence)
        return sequence.sequence_id

    def _settle(self, row: Row) -> None:
        """Blocks that the step filled become findable, also those of one who ended, before they are given back."""
        size, reason = self.pool.block_size, row.sequence.finish_reason
        first, end = row.start // size, (row.start + row.num_new_tokens) // size
        if first < end and reason is not FinishReason.FAILED:
            self._publish(row, first, end)
        if reason is None:
            return
        if reason is FinishReason.FAILED:
            self.pool.unpublish(row.sequence.block_ids)  # which of them is ill nobody knows
        self._leave(row.sequence)

    def _publish(self, row: Row, first: int, end: int) -> None:
        if not self.pool.prefix_cache:
            return
        keys = self._keys.first(row.sequence, end)
        for index in range(first, end):
            self.pool.publish(row.sequence.block_ids[index], keys[index])

    def _match_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks that hold the text's beginning; at most all but the last token, which is computed to draw from it."""
        if not self.pool.prefix_cache:
            return []
        num_full_blocks = (sequence.num_tokens - 1) // self.pool.block_size
        return self.pool.match_prefix(self._keys.first(sequence, num_full_blocks))

    # --- admission -------------------------------------------------------------------------------
    def _admit(self, budget: int) -> list[Row]:
        """Seat the head of the line while seats, budget and blocks last.  Not in a step that took blocks away."""
        rows: list[Row] = []
        self._needs_blocks = None  # nobody is asked in a step that took blocks away
        self._cause = WaitCause.NO_BLOCKS if self.last_preempted else WaitCause.NO_SEAT
        while self._line and self._free_seats and not self.last_preempted:
            if budget == 0:
                self._cause = WaitCause.NO_BUDGET
                break
            if not self._take_blocks(self._line.head):
                self._cause = WaitCause.NO_BLOCKS
                break
            sequence = self._seat(self._line.pop_head())
            rows.append(self._chunk(sequence, budget))
            budget -= rows[-1].num_new_tokens
        return rows

    def _take_blocks(self, sequence: Sequence) -> bool:
        """Blocks for all known tokens and one more, shared where their content is known; or a claim on the lacking."""
        shared = self._match_prefix(sequence)
        num_new = self.pool.blocks_for(sequence.num_tokens + 1) - len(shared)
        num_spare = len(self._running) // RUNNING_ROWS_A_SPARE_BLOCK
        num_free_needed = num_new + self.pool.num_revived(shared) + num_spare
        if num_free_needed > self.pool.num_admittable(self):
            self._needs_blocks = min(self.pool.num_blocks, num_free_needed)
            self.pool.claim(self, self._needs_blocks)
            return False
        self.pool.unclaim(self)
        self.pool.share(shared)
        sequence.block_ids = shared + self.pool.allocate(num_new)
        self._count_hit(sequence, len(shared) * self.pool.block_size)
        return True

    def _count_hit(self, sequence: Sequence, num_tokens: int) -> None:
        sequence.num_computed_tokens = num_tokens
        self.num_prefix_hit_tokens += num_tokens
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = num_tokens

    # --- seats -----------------------------------------------------------------------------------
    def _chunk(self, sequence: Sequence, budget: int) -> Row:
        num_new_tokens = min(budget, sequence.num_uncomputed_tokens)
        return Row(sequence, self._seats[sequence.sequence_id], sequence.num_computed_tokens, num_new_tokens)

    def _seat(self, sequence: Sequence) -> Sequence:
        self._seats[sequence.sequence_id] = heappop(self._free_seats)
        insort(self._running, sequence, key=self._line.rank)
        return sequence

    def _unseat(self, sequence: Sequence) -> None:
        heappush(self._free_seats, self._seats.pop(sequence.sequence_id))
        self._running = [running for running in self._running if running is not sequence]

    def _is_seated(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._seats

    def _leave(self, sequence: Sequence) -> None:
        self._unseat(sequence)
        super()._leave(sequence)

    def _forget(self, sequence: Sequence) -> None:
        super()._forget(sequence)
        self._keys.forget(sequence.sequence_id)
