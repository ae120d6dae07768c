"""What the last seconds were like, by lane: rates, and quantiles of TTFT, ITL and steps.

Owns seconds as slots, each with its counts and coarse logarithmic histograms, the oldest forgotten.  ``/metrics`` has
sums for ever, of which a scraper makes rates; this is for whoever looks now.  Ignorant of clocks: told the time.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from everystep.messages import StepSummary

MAX_WINDOW_S = 60
GROWTH = 1.05  # of a bin's bounds: a quantile is right within 2.5 %
LEAST_S = 1e-5
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

_log_growth = math.log(GROWTH)


class Durations:
    """Seconds by magnitude."""

    __slots__ = ("_bins",)

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()

    def observe(self, seconds: float) -> None:
        self._bins[round(math.log(max(LEAST_S, seconds)) / _log_growth)] += 1

    def add(self, other: Durations) -> None:
        self._bins.update(other._bins)

    def quantiles(self) -> dict[str, float] | None:
        """By name, in seconds; ``None`` where nothing was observed."""
        total = sum(self._bins.values())
        if not total:
            return None
        return {name: self._at(math.ceil(share * total)) for name, share in QUANTILES.items()}

    def _at(self, rank: int) -> float:
        """The duration of the ``rank``-th, from 1."""
        for index in sorted(self._bins):
            rank -= self._bins[index]
            if rank <= 0:
                return round(GROWTH**index, 6)
        raise AssertionError("a rank above the count")


@dataclass(slots=True)
class _Slot:
    """One second of one lane."""

    second: int
    num_tokens: int = 0
    num_ended: int = 0
    num_steps: int = 0
    seats: Counter[str] = field(default_factory=Counter)
    ttft: Durations = field(default_factory=Durations)
    itl: Durations = field(default_factory=Durations)
    step: Durations = field(default_factory=Durations)


class Recent:
    """One caller tells, on one thread, in the order of time."""

    def __init__(self, policies: Iterable[str]) -> None:
        self._slots: dict[str, deque[_Slot]] = {policy: deque() for policy in policies}

    def step(self, summary: StepSummary) -> None:
        slot = self._slot(summary.policy, summary.end_s)
        slot.num_steps += 1
        slot.step.observe(summary.end_s - summary.start_s)
        slot.seats.update(working=summary.num_working, held=summary.num_held, empty=summary.num_empty)

    def token(self, policy: str, now_s: float, ttft_s: float | None, itl_s: float | None) -> None:
        """A token, and how long it took: since the arrival if it is a sequence's first, else since the one before."""
        slot = self._slot(policy, now_s)
        slot.num_tokens += 1
        if ttft_s is not None:
            slot.ttft.observe(ttft_s)
        if itl_s is not None:
            slot.itl.observe(itl_s)

    def ended(self, policy: str, now_s: float) -> None:
        self._slot(policy, now_s).num_ended += 1

    def figures(self, policy: str, now_s: float, window_s: int) -> dict[str, Any]:
        """Of the last ``window_s`` whole seconds, the running one left out: it isn't over."""
        end = int(now_s)
        slots = [slot for slot in self._slots[policy] if end - window_s <= slot.second < end]
        span_s = max(1, min(window_s, end))
        ttft, itl, step, seats = Durations(), Durations(), Durations(), Counter[str]()
        for slot in slots:
            ttft.add(slot.ttft)
            itl.add(slot.itl)
            step.add(slot.step)
            seats.update(slot.seats)
        return {
            "tokens_per_s": round(sum(slot.num_tokens for slot in slots) / span_s, 3),
            "requests_per_s": round(sum(slot.num_ended for slot in slots) / span_s, 3),
            "steps_per_s": round(sum(slot.num_steps for slot in slots) / span_s, 3),
            "ttft_s": ttft.quantiles(),
            "itl_s": itl.quantiles(),
            "step_s": step.quantiles(),
            "seat_steps": {state: seats[state] for state in ("working", "held", "empty")},
        }

    def _slot(self, policy: str, now_s: float) -> _Slot:
        slots, second = self._slots[policy], int(now_s)
        if not slots or slots[-1].second < second:
            slots.append(_Slot(second))
            while slots[0].second <= second - MAX_WINDOW_S - 1:
                slots.popleft()
        return slots[-1]
