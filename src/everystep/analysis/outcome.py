"""What became of a load, measured or simulated: the same figures by the same definitions.

Owns TTFT, TPOT, ITL and E2E of one answer, the service-level objective and goodput.  All from the *scheduled* arrival:
a client that sends late doesn't make the server look quick.  Ignorant of who served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from everystep.analysis.load import Arrival


@dataclass(frozen=True, slots=True)
class Answer:
    """One arrival's answer.  Times are seconds from the load's start."""

    arrival: Arrival
    token_times_s: Sequence[float]  # when each token (or piece of text) was there, earliest first
    num_tokens: int
    error: str | None = None  # in words; then the latencies don't count

    @property
    def is_whole(self) -> bool:
        return self.error is None and self.num_tokens == self.arrival.output_tokens and len(self.token_times_s) > 0

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.token_times_s[0] - self.arrival.at_s

    @property
    def e2e_s(self) -> float:
        """Until the last token."""
        return self.token_times_s[-1] - self.arrival.at_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; ``None`` where there is only one."""
        if self.num_tokens < 2:
            return None
        return (self.token_times_s[-1] - self.token_times_s[0]) / (self.num_tokens - 1)

    @property
    def itl_s(self) -> list[float]:
        """Gaps between neighbouring tokens."""
        return [later - earlier for earlier, later in pairwise(self.token_times_s)]


@dataclass(frozen=True, slots=True)
class Slo:
    """A service-level objective: what a request must keep to be good.  ``None`` bounds nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def is_met_by(self, answer: Answer) -> bool:
        """Whether this one request was whole and in time."""
        if not answer.is_whole:
            return False
        kept = ((self.ttft_s, answer.ttft_s), (self.tpot_s, answer.tpot_s or 0.0), (self.e2e_s, answer.e2e_s))
        return all(limit is None or value <= limit for limit, value in kept)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole load's answers, in order of arrival."""

    answers: Sequence[Answer]
    wall_s: float  # from the load's start to the last token
    seat_steps: dict[str, int] | None = None  # working, held, empty; None where nobody counts seats

    def goodput_per_s(self, slo: Slo) -> float:
        """Requests a second that kept the objective (DistServe, OSDI 2024)."""
        return sum(slo.is_met_by(answer) for answer in self.answers) / self.wall_s
