"""Numbered seats, so that one can draw who sat where.

Owns which seat is whose.  Ignorant of why somebody sits or leaves.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from everystep.errors import ConfigError


class Seats:
    """``num_seats`` places; the lowest free number is given first."""

    def __init__(self, num_seats: int) -> None:
        if num_seats < 1:
            raise ConfigError(f"{num_seats} seats: a lane needs at least 1")
        self.num_seats = num_seats
        self._free = list(range(num_seats))
        heapify(self._free)
        self._seat_of: dict[str, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def __getitem__(self, sequence_id: str) -> int:
        return self._seat_of[sequence_id]

    def take(self, sequence_id: str) -> int:
        """Seat the sequence; the caller has seen that a seat is free."""
        self._seat_of[sequence_id] = seat = heappop(self._free)
        return seat

    def leave(self, sequence_id: str) -> None:
        heappush(self._free, self._seat_of.pop(sequence_id))
