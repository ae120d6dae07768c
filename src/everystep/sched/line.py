"""The waiting line: ranked by priority that improves with waiting, then by arrival.

Owns the order.  Ageing is linear, so the order of two waiting sequences never changes: the rank is fixed at arrival
and time needn't be known.

**The bound on waiting.**  Let ``s`` have priority ``p`` and have arrived at ``a``; let ``p0`` be the best priority that
comes.

1. *Overtaking.*  Who sits down while ``s`` waits ranks before it, so ``t`` with priority ``q`` came no later than
   ``a + ageing_s × (p − q)``: each policy takes from the head of the line and passes nobody by.  After
   ``d = a + ageing_s × (p − p0)`` nobody who comes can go before ``s``.
2. *Progress.*  The best-ranked live sequence of a lane, alone on its pool, ends within ``T`` steps of the lane.  Let
   ``M`` be the largest ``max_tokens``, ``L`` the longest text, ``N`` the seats, ``B`` the token budget.  Static: the
   running round ends within ``M`` steps, then it is in the next one: ``T = 2M``.  Per token: nobody is admitted before
   it, all who sit have ended after ``M`` steps: ``T = 2M``.  Continuous: nobody is admitted before it; of each step
   with an unread prompt ``B − N + 1`` tokens at least are read, the best-ranked prompt's first, and all others
   decode, so who sits is out after ``N·L/(B − N + 1) + M`` steps (those preempted, earlier), and then it needs
   ``L/(B − N + 1) + M``; a better-ranked one is never preempted for a worse.
3. *So* at ``d`` the ``n`` live sequences that rank before ``s`` are all that ever will, and ``s`` ends within
   ``(n + 1) × T`` steps of its lane from then on; ``n`` is bounded by the door (``--max-queue``).

Lanes that share a pool wait for each other's blocks: the oldest claim gathers them
(:meth:`~everystep.sched.blocks.BlockPool.num_admittable`), so each lane's head waits for what sits elsewhere, and for
one head of each other lane, to end.  A running sequence that others leave no block is preempted, but admission gives it
blocks for one token more than it has, so that it gets on each time.  Hence a coarse bound, in steps of all lanes: the
number of lanes × the sum of their ``T`` × ``M`` in the place of ``T``.

The fuzz asserts 1 and 3 at each step (``tests/fuzzing/promises.py``).
"""

from __future__ import annotations

from bisect import bisect_left, insort, insort_left
from collections.abc import Iterator
from operator import itemgetter

from everystep.errors import ConfigError
from everystep.types import Sequence, WaitCause, Waiting

Rank = tuple[float, float, int]
_by_rank = itemgetter(0)

COMMON_CAUSES = frozenset({WaitCause.ROUND_RUNNING, WaitCause.NO_SEAT})


def rank_of(sequence: Sequence, ageing_s: float) -> Rank:
    """Less is better: at any time, priority − waited/ageing_s orders sequences as this does."""
    return (sequence.priority + sequence.arrival_s / ageing_s, sequence.arrival_s, sequence.arrival_index)


class Line:
    """Sequences by rank, best first, with the cause why they wait."""

    def __init__(self, ageing_s: float) -> None:
        if not ageing_s > 0:
            raise ConfigError(f"ageing_s={ageing_s:g} must be above 0", param="ageing_s")
        self.ageing_s = ageing_s
        self._entries: list[tuple[Rank, Sequence]] = []
        self._causes: tuple[Waiting, ...] = ()
        self._causes_of: tuple[WaitCause, int | None] | None = None
        self._is_changed = True

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in self._entries)

    @property
    def head(self) -> Sequence:
        return self._entries[0][1]

    def rank(self, sequence: Sequence) -> Rank:
        return rank_of(sequence, self.ageing_s)

    def add(self, sequence: Sequence) -> None:
        insort(self._entries, (self.rank(sequence), sequence), key=_by_rank)
        self._is_changed = True

    def put_back(self, sequence: Sequence) -> None:
        """As :meth:`add` for one that was in before, so before its equals."""
        insort_left(self._entries, (self.rank(sequence), sequence), key=_by_rank)
        self._is_changed = True

    def pop_head(self) -> Sequence:
        self._is_changed = True
        return self._entries.pop(0)[1]

    def remove(self, sequence: Sequence) -> None:
        position = bisect_left(self._entries, self.rank(sequence), key=_by_rank)
        while self._entries[position][1] is not sequence:  # equals, where a user gave no arrival_index
            position += 1
        del self._entries[position]
        self._is_changed = True

    def why_waiting(self, cause: WaitCause, needs_blocks: int | None = None) -> tuple[Waiting, ...]:
        """Everybody's cause, given the head's and the blocks that it needs.  The same object while nothing changed.

        A running round and taken seats keep out everybody alike.  What the head alone lacks, blocks or tokens of a
        budget, makes the others wait for the head: nobody slips past it.
        """
        if self._is_changed or (cause, needs_blocks) != self._causes_of:
            self._causes = self._explain(cause, needs_blocks)
            self._causes_of, self._is_changed = (cause, needs_blocks), False
        return self._causes

    def _explain(self, cause: WaitCause, needs_blocks: int | None) -> tuple[Waiting, ...]:
        if cause in COMMON_CAUSES or not self._entries:
            return tuple([Waiting(sequence, cause) for _, sequence in self._entries])
        head, *others = self
        behind = [Waiting(other, WaitCause.BEHIND, head.sequence_id) for other in others]
        return (Waiting(head, cause, needs_blocks=needs_blocks), *behind)
