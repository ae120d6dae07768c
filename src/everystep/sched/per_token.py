"""Per-token batching: a batch of fixed width, regrouped before every token.

Owns the seats.  No token budget, no preemption, no prefix reuse.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from everystep.sched.blocks import BlockPool
from everystep.sched.lane import Lane
from everystep.types import Row, Sequence, StepPlan, WaitCause


class PerTokenPolicy(Lane):
    """``batch_size`` seats; a seat that frees is filled before the next token.

    ``reuse_cache=False`` reads every text whole at each step, as the naive loop does that keeps no KV cache.
    ``max_batch_tokens`` bounds the context tokens of all seats together; one sequence always may sit.
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
        super().__init__(batch_size, pool, max_model_len, ageing_s)
        self.reuse_cache = reuse_cache
        self.max_batch_tokens = max_batch_tokens
        self._seats: list[Sequence | None] = [None] * batch_size

    def plan(self, now_s: float) -> StepPlan:
        """Fill free seats, then a step for everybody seated."""
        self._fill_seats()
        rows = []
        for seat, sequence in enumerate(self._seats):
            if sequence is None:
                continue
            if not self.reuse_cache:
                sequence.num_computed_tokens = 0
            rows.append(Row(sequence, seat, sequence.num_computed_tokens, sequence.num_uncomputed_tokens))
        return StepPlan(self.name, tuple(rows))

    def _fill_seats(self) -> None:
        started = []
        self._cause = WaitCause.NO_SEAT
        for seat, sitting in enumerate(self._seats):
            if sitting is not None:
                continue
            if not self._line:
                break
            head = self._line.head
            if not self._has_room_for(head):
                self._cause = WaitCause.NO_BUDGET
                break
            if not self._reserve_worst_case(head):
                self._cause = WaitCause.NO_BLOCKS
                break
            self._seats[seat] = self._line.pop_head()
            started.append(head.sequence_id)
        self.last_started = tuple(started)
        if self._cause is not WaitCause.NO_BLOCKS:
            self.pool.unclaim(self)

    def _has_room_for(self, head: Sequence) -> bool:
        seated = [sequence for sequence in self._seats if sequence is not None]
        if self.max_batch_tokens is None or not seated:
            return True
        return sum(s.num_tokens for s in seated) + head.num_tokens <= self.max_batch_tokens

    def _is_seated(self, sequence: Sequence) -> bool:
        return any(sitting is sequence for sitting in self._seats)

    def _leave(self, sequence: Sequence) -> None:
        self._seats = [None if sitting is sequence else sitting for sitting in self._seats]
        super()._leave(sequence)
