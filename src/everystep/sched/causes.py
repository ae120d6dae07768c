"""Why each waiting sequence waits, as of the last plan.

Owns the spreading of one cause over a line, and keeps the answer while nothing changed.  Ignorant of how the cause
came about.
"""

from __future__ import annotations

from everystep.sched.line import RankedLine
from everystep.types import Sequence, WaitCause, Waiting

# Causes that hold for everybody alike.  The others are the head's own; who stands behind it waits for it.
COMMON_CAUSES = frozenset({WaitCause.ROUND_RUNNING, WaitCause.NO_SEAT})


class Causes:
    """The line with its causes.  The same tuple object comes back as long as line and cause are the same."""

    def __init__(self, line: RankedLine) -> None:
        self.why = WaitCause.NO_SEAT  # set by each plan
        self._line = line
        self._told_of: tuple[int, WaitCause] | None = None
        self._told: tuple[Waiting, ...] = ()

    def tell(self) -> tuple[Waiting, ...]:
        state = (self._line.version, self.why)
        if state != self._told_of:
            self._told_of, self._told = state, self._spread()
        return self._told

    def _spread(self) -> tuple[Waiting, ...]:
        if self.why in COMMON_CAUSES:
            return tuple([Waiting(sequence, self.why) for sequence in self._line])
        return tuple([self._of_rank(place, sequence) for place, sequence in enumerate(self._line)])

    def _of_rank(self, place: int, sequence: Sequence) -> Waiting:
        if place == 0:
            return Waiting(sequence, self.why)
        return Waiting(sequence, WaitCause.BEHIND, self._line.head.sequence_id)
