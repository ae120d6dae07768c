"""How fast a waiting line drains, and so when a client that found it full should come again.

Owns the measurement and its formula.  Ignorant of requests and of bounds; told the time.

A line of ours drains in bursts: four seats at the end of a static round, one now and then in a continuous lane.  So a
mean rate alone misleads: with four seats every 30 s, one place takes 7.5 s in the mean, yet whoever comes after 7.5 s
mostly finds the same full line.  Hence the estimate for ``a`` places (or tokens) is

    time = rest of the silence + SPARE × a / rate

- *silence*: time without a start while somebody waits.  The usual one, ``g``, is the length-weighted median of those
  seen: half of the time that was waited lies in silences at least as long.  It is the round's length where starts come
  in rounds, and 1.7 mean gaps where they come at random.
- *rest*: with ``e`` s of the present silence gone, ``g − e`` while that is usual.  A silence that is longer than usual
  (a long prompt, a stalled worker) is expected to take as long again as it has taken: ``e``.  The same where nothing
  was seen yet.
- *rate*: places or tokens that starts freed, by the time in which they did, the present silence included.  Of the first
  start after a line has formed nothing is counted: it may have found a free seat, and says nothing of a full line.

Time in which nobody waits isn't measured at all, so that an idle hour changes nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

WINDOW = 64  # moments of starting that are remembered
SPARE = 1.25  # of ten starts at random the time is above this in one of five cases


@dataclass(frozen=True, slots=True)
class Moment:
    """Sequences that started together, after a silence."""

    silence_s: float
    num_sequences: int
    num_tokens: int
    is_measured: bool  # somebody had started, and somebody waited, all the time before it


class Drain:
    """Told when the line forms, starts somebody and is empty; asked how long some places take to become free."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=WINDOW)
        self._silent_since_s: float | None = None  # None: nobody waits
        self._has_started = False  # since the line formed

    def form(self, now_s: float) -> None:
        """Somebody waits, and nobody did."""
        self._silent_since_s, self._has_started = now_s, False

    def empty(self) -> None:
        """Nobody waits any more."""
        self._silent_since_s = None

    def start(self, num_sequences: int, num_tokens: int, now_s: float) -> None:
        """These got seats, together."""
        if self._silent_since_s is None:
            return
        self._moments.append(Moment(self._silence_s(now_s), num_sequences, num_tokens, self._has_started))
        self._silent_since_s, self._has_started = now_s, True

    def time_for(self, num_sequences: int, num_tokens: int, now_s: float) -> float:
        """Seconds until that many places and tokens are free, by the formula above; from 0."""
        measured = [moment for moment in self._moments if moment.is_measured]
        measured_s = sum(moment.silence_s for moment in measured) + self._has_started * self._silence_s(now_s)
        shares = [
            wanted / freed
            for wanted, freed in (
                (num_sequences, sum(moment.num_sequences for moment in measured)),
                (num_tokens, sum(moment.num_tokens for moment in measured)),
            )
            if freed
        ]
        return self._rest_s(now_s) + SPARE * measured_s * max(shares, default=0.0)

    def _rest_s(self, now_s: float) -> float:
        silence_s, usual_s = self._silence_s(now_s), self._usual_silence_s()
        return usual_s - silence_s if silence_s <= usual_s else silence_s

    def _silence_s(self, now_s: float) -> float:
        return 0.0 if self._silent_since_s is None else max(0.0, now_s - self._silent_since_s)

    def _usual_silence_s(self) -> float:
        """The length-weighted median; 0 where none was seen."""
        silences = sorted(moment.silence_s for moment in self._moments)
        half, passed = sum(silences) / 2, 0.0
        for silence_s in silences:
            passed += silence_s
            if passed >= half:
                return silence_s
        return 0.0
