"""Against queueing theory: one seat and a step of one second are the M/D/1 queue, whose waits are known exactly."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest

from analysis.capacity_machines import machine, poisson_load, single_tokens
from everystep.analysis.capacity import plan_capacity
from everystep.analysis.capacity_cases import Case
from everystep.analysis.capacity_trials import Trials
from everystep.analysis.outcome import Slo
from everystep.analysis.simulator import simulate
from everystep.config import Settings

ONE_SEAT = Settings(max_num_seqs=1)
NUM_BATCHES = 20


def mean_wait_s(load: float) -> float:
    """Pollaczek and Khinchine, for a service time of exactly 1: ρ / 2(1 − ρ)."""
    return load / (2 * (1 - load))


def share_within(wait_s: float, load: float) -> float:
    """Erlang 1909: the waiting time's distribution in M/D/1 with a service time of 1."""
    terms = (
        (-load * (wait_s - k)) ** k / math.factorial(k) * math.exp(load * (wait_s - k))
        for k in range(math.floor(wait_s) + 1)
    )
    return (1 - load) * sum(terms)


def highest_load(wait_s: float) -> float:
    """The ρ at which 99 % wait at most so long, by bisection of Erlang's formula."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if share_within(wait_s, middle) >= 0.99 else (low, middle)
    return low


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_wait_on_one_seat_is_pollaczeks_and_khinchines(load: float) -> None:
    answers = simulate(poisson_load(load, 8_000, 7), ONE_SEAT, "continuous", machine()).answers
    waits_s = [answer.ttft_s - 1.0 for answer in answers]
    size = len(waits_s) // NUM_BATCHES
    means = [fmean(waits_s[first : first + size]) for first in range(0, len(waits_s), size)]
    error_s = stdev(means) / math.sqrt(NUM_BATCHES)
    assert error_s < 0.15 * mean_wait_s(load), "too few requests to tell anything"
    assert abs(fmean(waits_s) - mean_wait_s(load)) < 3 * error_s


def test_the_highest_rate_for_a_p99_is_the_one_of_erlangs_formula() -> None:
    trials = Trials(single_tokens(3_000, range(3)), Slo(ttft_s=9.0))
    rate = trials.highest_rate(Case(ONE_SEAT, "continuous", machine()), 0.5, stride=0.25)
    assert rate == pytest.approx(highest_load(8.0), rel=0.05)


def test_usage_on_one_seat_is_the_offered_load_and_littles_law() -> None:
    plan = plan_capacity(machine(), ONE_SEAT, single_tokens(500, range(2)), Slo(ttft_s=4.0), 1.0)
    load = plan.rates.planned
    assert plan.usage.busy == pytest.approx(load, rel=0.01)
    assert plan.usage.seats == 1.0
    assert plan.usage.in_system == pytest.approx(load * (1 + mean_wait_s(load)), rel=0.15)
    assert plan.binds == "seats"
