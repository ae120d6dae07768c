"""The waiting line: ranked by priority that improves with waiting, then by arrival.

Owns the order.  Ageing is linear, so the order of two waiting sequences never changes: the rank is fixed at arrival
and time needn't be known.  A bound on waiting follows: nobody is overtaken by arrivals later than
``ageing_s`` × (difference of priorities).
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
        self._causes_of: WaitCause | None = None
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

    def why_waiting(self, cause: WaitCause) -> tuple[Waiting, ...]:
        """Everybody's cause, given the head's.  The same object as before while nothing changed.

        A running round and taken seats keep out everybody alike.  What the head alone lacks, blocks or tokens of a
        budget, makes the others wait for the head: nobody slips past it.
        """
        if self._is_changed or cause is not self._causes_of:
            self._causes = self._explain(cause)
            self._causes_of, self._is_changed = cause, False
        return self._causes

    def _explain(self, cause: WaitCause) -> tuple[Waiting, ...]:
        if cause in COMMON_CAUSES or not self._entries:
            return tuple([Waiting(sequence, cause) for _, sequence in self._entries])
        head, *others = self
        behind = [Waiting(other, WaitCause.BEHIND, head.sequence_id) for other in others]
        return (Waiting(head, cause), *behind)
