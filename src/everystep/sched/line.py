"""Sequences in order of rank.

Owns the order: priority, improved by one for every ``ageing_s`` of waiting, then arrival.  Ignorant of seats and
blocks.

Under linear ageing the order of two sequences never changes.  At any time ``t`` a sequence's aged priority is
``priority - (t - arrival_s) / ageing_s``; the ``t`` is common to all, so ``priority + arrival_s / ageing_s`` ranks
them once and for ever, and nothing is sorted anew as time passes.  It follows that a sequence is never overtaken by
one that comes later than ``(its priority - theirs) * ageing_s`` seconds after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from everystep.errors import ConfigError
from everystep.types import Sequence


class RankedLine:
    """Sequences, best rank first.  ``version`` changes whenever somebody comes or goes."""

    def __init__(self, ageing_s: float) -> None:
        if not ageing_s > 0:
            raise ConfigError(f"ageing_s={ageing_s:g} must be above 0", param="ageing_s")
        self.version = 0
        self._ageing_s = ageing_s
        self._ranks: list[tuple[float, int]] = []  # ascending, parallel to _sequences
        self._sequences: list[Sequence] = []
        self._by_id: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences)

    def __contains__(self, sequence_id: object) -> bool:
        return sequence_id in self._by_id

    @property
    def head(self) -> Sequence:
        return self._sequences[0]

    @property
    def tail(self) -> Sequence:
        return self._sequences[-1]

    def add(self, sequence: Sequence, *, before_equals: bool = False) -> None:
        """Put the sequence where its rank says, behind its equals unless it was there before them."""
        assert sequence.sequence_id not in self._by_id, f"{sequence.sequence_id} is in the line already"
        rank = self._rank(sequence)
        index = bisect_left(self._ranks, rank) if before_equals else bisect_right(self._ranks, rank)
        self._ranks.insert(index, rank)
        self._sequences.insert(index, sequence)
        self._by_id[sequence.sequence_id] = sequence
        self.version += 1

    def remove(self, sequence_id: str) -> Sequence | None:
        """Take the sequence out; ``None`` if it isn't here."""
        sequence = self._by_id.pop(sequence_id, None)
        if sequence is None:
            return None
        index = bisect_left(self._ranks, self._rank(sequence))
        while self._sequences[index] is not sequence:
            index += 1
        del self._ranks[index], self._sequences[index]
        self.version += 1
        return sequence

    def pop_head(self) -> Sequence:
        sequence = self._sequences.pop(0)
        del self._ranks[0], self._by_id[sequence.sequence_id]
        self.version += 1
        return sequence

    def pop_tail(self) -> Sequence:
        sequence = self._sequences.pop()
        del self._ranks[-1], self._by_id[sequence.sequence_id]
        self.version += 1
        return sequence

    def _rank(self, sequence: Sequence) -> tuple[float, int]:
        return (sequence.priority + sequence.arrival_s / self._ageing_s, sequence.arrival_index)
