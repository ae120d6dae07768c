"""What the last seconds were like, by lane: rates, and quantiles of TTFT, ITL and steps.

Owns sums since the start as they were at the end of each of the last seconds: any window is the difference of two of
them, so that asking costs the same for each.  ``/metrics`` has sums for ever, of which a scraper makes rates; this is
for whoever looks now.  Ignorant of clocks: told the time.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import sub
from typing import Any

from everystep.messages import StepSummary

MAX_WINDOW_S = 60
GROWTH = 1.05  # of a bin's bounds: a quantile is right within 2.5 %
LEAST_S = 1e-5  # what took less is told as this
NUM_BINS = 480  # what took more than 40 hours is told as 40 hours
QUANTILES = {"p50": 50, "p95": 95, "p99": 99}  # percent

_log = math.log
_bins_per_e = 1 / math.log(GROWTH)
_first = math.log(LEAST_S) * _bins_per_e


class Durations:
    """Seconds by magnitude: a bin per factor of :data:`GROWTH`, told as its middle."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * NUM_BINS))  # [bins]

    def observe(self, seconds: float) -> None:
        index = round(_log(seconds) * _bins_per_e - _first) if seconds > LEAST_S else 0
        self._counts[index if index < NUM_BINS else -1] += 1

    def copy(self) -> Durations:
        same = Durations()
        same._counts = self._counts[:]
        return same

    def quantiles_since(self, before: Durations) -> dict[str, float] | None:
        """Of what was observed after ``before`` was copied, by name, in seconds, each as that of the nearest rank.

        ``None`` where nothing was.
        """
        ranks = list(accumulate(map(sub, self._counts, before._counts)))
        total = ranks[-1]
        if not total:
            return None
        return {
            name: _middle(bisect_left(ranks, math.ceil(percent * total / 100))) for name, percent in QUANTILES.items()
        }


def _middle(index: int) -> float:
    """Of a bin, in seconds."""
    return float(f"{LEAST_S * GROWTH**index:.4g}")


@dataclass(slots=True)
class _Sums:
    """All that a lane did since the start."""

    num_tokens: int = 0
    num_ended: int = 0
    num_steps: int = 0
    num_working: int = 0
    num_held: int = 0
    num_empty: int = 0
    ttft: Durations = field(default_factory=Durations)
    itl: Durations = field(default_factory=Durations)
    step: Durations = field(default_factory=Durations)

    def copy(self) -> _Sums:
        return replace(self, ttft=self.ttft.copy(), itl=self.itl.copy(), step=self.step.copy())


class _Lane:
    """Sums as they are, and as they were at the end of each second in which something happened."""

    __slots__ = ("_past", "_second", "ends_s", "sums")

    def __init__(self) -> None:
        self.sums = _Sums()
        self.ends_s = 0.0  # the end of the second that runs
        self._second = -1
        self._past: deque[tuple[int, _Sums]] = deque()  # oldest first, the first older than any window

    def turn_to(self, now_s: float) -> None:
        """Another second has begun."""
        self._past.append((self._second, self.sums.copy()))
        self._second = int(now_s)
        self.ends_s = self._second + 1.0
        while len(self._past) > 1 and self._past[1][0] < self._second - MAX_WINDOW_S:
            self._past.popleft()

    def before(self, second: int) -> _Sums:
        """All that was when that second began."""
        if self._second < second:
            return self.sums
        return next(sums for end, sums in reversed(self._past) if end < second)


class Recent:
    """One caller tells, on one thread, in the order of time; what comes a little late counts as of now."""

    def __init__(self, policies: Iterable[str]) -> None:
        self._lanes = {policy: _Lane() for policy in policies}

    def step(self, summary: StepSummary) -> None:
        sums = self._sums(summary.policy, summary.end_s)
        sums.num_steps += 1
        sums.step.observe(summary.end_s - summary.start_s)
        sums.num_working += summary.num_working
        sums.num_held += summary.num_held
        sums.num_empty += summary.num_empty

    def first_token(self, policy: str, now_s: float, ttft_s: float) -> None:
        """A sequence's first token, ``ttft_s`` after its arrival."""
        sums = self._sums(policy, now_s)
        sums.num_tokens += 1
        sums.ttft.observe(ttft_s)

    def next_token(self, policy: str, now_s: float, itl_s: float) -> None:
        """A further token, ``itl_s`` after the one before."""
        sums = self._sums(policy, now_s)
        sums.num_tokens += 1
        sums.itl.observe(itl_s)

    def ended(self, policy: str, now_s: float) -> None:
        """A sequence ended, whatever the end."""
        self._sums(policy, now_s).num_ended += 1

    def figures(self, policy: str, now_s: float, window_s: int) -> dict[str, Any]:
        """Of the last ``window_s`` whole seconds, the running one left out: it isn't over.

        Rates are per second of the window, or of the server's life where that is shorter.
        """
        assert 1 <= window_s <= MAX_WINDOW_S
        end, lane = int(now_s), self._lanes[policy]
        span_s = max(1, min(window_s, end))
        new, old = lane.before(end), lane.before(max(0, end - window_s))
        return {
            "tokens_per_s": round((new.num_tokens - old.num_tokens) / span_s, 3),
            "requests_per_s": round((new.num_ended - old.num_ended) / span_s, 3),
            "steps_per_s": round((new.num_steps - old.num_steps) / span_s, 3),
            "ttft_s": new.ttft.quantiles_since(old.ttft),
            "itl_s": new.itl.quantiles_since(old.itl),
            "step_s": new.step.quantiles_since(old.step),
            "seat_steps": {
                "working": new.num_working - old.num_working,
                "held": new.num_held - old.num_held,
                "empty": new.num_empty - old.num_empty,
            },
        }

    def _sums(self, policy: str, now_s: float) -> _Sums:
        lane = self._lanes[policy]
        if now_s >= lane.ends_s:
            lane.turn_to(now_s)
        return lane.sums
