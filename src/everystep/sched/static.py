"""Static batching: fill a batch, run it until its longest member ends, refill.

Owns the round and its seats.  Ignorant of models, clocks and clients.
"""

from __future__ import annotations

from everystep.sched.blocks import BlockPool
from everystep.sched.lane import Lane
from everystep.types import Row, Sequence, StepPlan, WaitCause


class StaticPolicy(Lane):
    """Rounds of up to ``batch_size``.  Nobody looks at the line while a round runs; who ended keeps the seat.

    ``max_wait_s`` lets a round that isn't full wait for company, counted from its oldest member's arrival.
    ``max_batch_tokens`` bounds the prompt tokens of a round; the first member is taken whatever its length.
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
        super().__init__(batch_size, pool, max_model_len, ageing_s)
        self.max_batch_tokens = max_batch_tokens
        self.max_wait_s = max_wait_s
        self._round: list[Sequence] = []  # by seat; ended members stay until the round ends

    @property
    def is_round_running(self) -> bool:
        return any(not member.is_finished for member in self._round)

    def plan(self, now_s: float) -> StepPlan:
        """The running round's next step, or a new round's first."""
        self.last_started = ()
        if not self.is_round_running:
            self._round = []
            if self._may_start(now_s):
                self._fill_round()
            else:
                self._cause = WaitCause.NO_SEAT  # seats open when the round starts
        else:
            self._cause = WaitCause.ROUND_RUNNING
        rows, held = [], []
        for seat, member in enumerate(self._round):
            if member.is_finished:
                held.append(Row(member, seat, member.num_computed_tokens, 0))
            else:
                rows.append(Row(member, seat, member.num_computed_tokens, member.num_uncomputed_tokens))
        return StepPlan(self.name, tuple(rows), tuple(held))

    def ready_at_s(self) -> float | None:
        """When a line that waits for company will be taken as it is."""
        if self.max_wait_s == 0.0 or self.is_round_running or not self._line:
            return None
        return min(sequence.arrival_s for sequence in self._line) + self.max_wait_s

    def _may_start(self, now_s: float) -> bool:
        """Whether the line is long enough, or has waited long enough."""
        if not self._line:
            return False
        ready_s = self.ready_at_s()
        return ready_s is None or now_s >= ready_s or self._is_company_enough()

    def _is_company_enough(self) -> bool:
        """Whether nobody who may come could join the next round: its seats or its tokens are spoken for."""
        if len(self._line) >= self.num_seats:
            return True
        if self.max_batch_tokens is None:
            return False
        return sum(sequence.num_prompt_tokens for sequence in self._line) >= self.max_batch_tokens

    def _fill_round(self) -> None:
        """Take what is there from the head of the line, across request borders, until something binds."""
        self._cause = WaitCause.ROUND_RUNNING
        num_tokens = 0
        while self._line and len(self._round) < self.num_seats:
            head = self._line.head
            num_tokens += head.num_prompt_tokens
            if self._round and self.max_batch_tokens is not None and num_tokens > self.max_batch_tokens:
                self._cause = WaitCause.NO_BUDGET
                break
            if not self._reserve_worst_case(head):
                self._cause = WaitCause.NO_BLOCKS
                break
            self._round.append(self._line.pop_head())
        if self._round:
            self.pool.unclaim(self)  # nobody is taken before this round ends: hold nothing back until then
        self.last_started = tuple(member.sequence_id for member in self._round)

    def _is_seated(self, sequence: Sequence) -> bool:
        return any(member is sequence for member in self._round)
