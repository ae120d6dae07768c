"""One rate tried: simulate it, judge it by its 99th percentiles and by whether the queue grows.

Owns what "the objective holds at this rate" means.  Ignorant of which rate is tried next.

An objective holds when the 99th percentile of each bounded figure, over *all* requests of all draws of the load, is
within its bound, a refused request counting as one that took for ever, and the queue is stationary.  A queue that grows
can still be short at the end of a short load; so the mean E2E of the later half of a draw is compared with the earlier
half's.  Offered ρ > 1 times what a server can do, waits grow by ρ − 1 seconds a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from everystep.analysis.capacity_cases import Case
from everystep.analysis.load import Load
from everystep.analysis.outcome import Answer, Outcome, Slo
from everystep.analysis.percentiles import percentile
from everystep.analysis.simulator import simulate
from everystep.types import StepPlan

SHARE = 0.99
MAX_GROWTH = 0.02  # seconds a second: 2 % more is offered than can be done


@dataclass(frozen=True, slots=True)
class Probe:
    """A rate and what it did.  Seconds; an infinite percentile means that over 1 % of the requests were refused."""

    rate: float  # requests a second, offered
    ttft_p99_s: float
    tpot_p99_s: float  # 0 where no request has a second token
    e2e_p99_s: float
    e2e_mean_s: float  # of those who were served
    growth: float  # of E2E, in seconds a second between the middles of a draw's halves; mean over draws
    num_refused: int
    misses: tuple[str, ...]  # of ttft, tpot, e2e, growth: what breaks the objective

    @property
    def holds(self) -> bool:
        return not self.misses


def probe(case: Case, loads: Sequence[Load], rate: float, slo: Slo) -> Probe:
    """Simulate each draw by itself and judge them together."""
    outcomes = [simulate(load, case.settings, case.policy, case.machine, is_line_bounded=True) for load in loads]
    return judge(outcomes, rate, slo)


def judge(outcomes: Sequence[Outcome], rate: float, slo: Slo) -> Probe:
    """The objective against what became of a load's draws, simulated or measured."""
    answers = [answer for outcome in outcomes for answer in outcome.answers]
    whole = [answer for answer in answers if answer.is_whole]
    num_refused = len(answers) - len(whole)
    e2e = [answer.e2e_s for answer in whole]
    p99 = {
        "ttft": p99_of([answer.ttft_s for answer in whole], num_refused),
        "tpot": p99_of([answer.tpot_s for answer in whole if answer.tpot_s is not None], num_refused),
        "e2e": p99_of(e2e, num_refused),
    }
    growth = fmean(growth_of([answer for answer in outcome.answers if answer.is_whole]) for outcome in outcomes)
    bounds = {"ttft": slo.ttft_s, "tpot": slo.tpot_s, "e2e": slo.e2e_s}
    misses = [name for name, bound in bounds.items() if bound is not None and p99[name] > bound]
    misses += ["growth"] * (growth > MAX_GROWTH)
    mean_s = fmean(e2e) if e2e else math.inf
    return Probe(rate, p99["ttft"], p99["tpot"], p99["e2e"], mean_s, growth, num_refused, tuple(misses))


def p99_of(values: Sequence[float], num_refused: int) -> float:
    """The 99th percentile, with the refused at infinity; 0 of nothing."""
    if not values and not num_refused:
        return 0.0
    value = percentile([*values, *[math.inf] * num_refused], SHARE)
    return math.inf if math.isnan(value) else value  # interpolated with, or between, the refused


def growth_of(answers: Sequence[Answer]) -> float:
    """How fast E2E grows with time of arrival: the later half's mean less the earlier half's, over their distance."""
    half = len(answers) // 2
    if half == 0:
        return 0.0
    earlier, later = answers[:half], answers[-half:]
    distance_s = fmean(answer.arrival.at_s for answer in later) - fmean(answer.arrival.at_s for answer in earlier)
    if distance_s <= 0.0:
        return 0.0
    return (fmean(answer.e2e_s for answer in later) - fmean(answer.e2e_s for answer in earlier)) / distance_s


# --- without the figures --------------------------------------------------------------------------
class _HopelessError(Exception):
    """So many first tokens came late that the rest can't mend the percentile."""


def holds(case: Case, loads: Sequence[Load], rate: float, slo: Slo) -> bool:
    """As :func:`probe`, but a rate that is hopeless isn't simulated to its end."""
    late = _LateFirstTokens(slo.ttft_s, sum(map(len, loads)), case.machine.submit_s + case.machine.deliver_s)
    on_step = late.on_step if slo.ttft_s is not None else None
    try:
        outcomes = [
            simulate(load, case.settings, case.policy, case.machine, on_step=on_step, is_line_bounded=True)
            for load in loads
        ]
    except _HopelessError:
        return False
    return judge(outcomes, rate, slo).holds


class _LateFirstTokens:
    """Counts first tokens over the bound while the simulator steps."""

    def __init__(self, bound_s: float | None, num_requests: int, way_s: float) -> None:
        """``way_s`` is the client's way in and out, which is in its TTFT and in no sequence's."""
        self._bound_s = (bound_s or math.inf) - way_s
        self._num_left = num_requests - math.floor(SHARE * (num_requests - 1))

    def on_step(self, plan: StepPlan, start_s: float, end_s: float) -> None:
        """A row whose sequence has made nothing yet draws its first token as it reaches the prompt's end."""
        for row in plan.rows:
            sequence = row.sequence
            is_late = end_s - sequence.arrival_s > self._bound_s
            if is_late and len(sequence.token_ids) == sequence.num_prompt_tokens == row.end:
                self._num_left -= 1
                if self._num_left <= 0:
                    raise _HopelessError
