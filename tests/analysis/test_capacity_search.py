"""The search for the highest rate, what a rate means, and how one rate is judged."""

from __future__ import annotations

import math
from random import Random

import pytest

from analysis.capacity_machines import machine, single_tokens, steady
from everystep.analysis.arrivals import burst, constant, poisson
from everystep.analysis.capacity_cases import Case
from everystep.analysis.capacity_load import Stratified, load_shape, rate_of
from everystep.analysis.capacity_probe import growth_of, holds, judge, probe
from everystep.analysis.capacity_search import highest_rate
from everystep.analysis.lengths import parse_lengths
from everystep.analysis.load import Arrival, closed
from everystep.analysis.outcome import Answer, Outcome, Slo
from everystep.analysis.simulator import simulate
from everystep.config import Settings
from everystep.errors import ConfigError

ONE = parse_lengths("1")


@pytest.mark.parametrize("guess", [0.2, 7.0, 7.3, 90.0])
@pytest.mark.parametrize("stride", [0.02, 0.25])
def test_the_search_ends_within_two_percent_below_the_edge(guess: float, stride: float) -> None:
    found = highest_rate(lambda rate: rate <= 7.3, guess, stride)
    assert 7.3 / 1.021 <= found <= 7.3


def test_a_guess_at_the_edge_takes_two_questions() -> None:
    asked: list[float] = []

    def is_low(rate: float) -> bool:
        asked.append(rate)
        return rate <= 7.3

    assert highest_rate(is_low, 7.3) == 7.3
    assert len(asked) == 2


def test_what_holds_nowhere_is_0_and_what_holds_everywhere_ends_too() -> None:
    assert highest_rate(lambda rate: False, 5.0) == 0.0
    assert highest_rate(lambda rate: True, 5.0) >= 500.0
    assert highest_rate(lambda rate: rate < 1.0, 5.0, reach=4.0) == 0.0


def test_a_rate_counts_gaps_and_not_requests() -> None:
    assert rate_of(constant(4.0, 101, ONE, ONE, Random(0))) == pytest.approx(4.0)
    assert rate_of([Arrival(at_s, 1, 1) for at_s in (0, 0, 0, 10, 10, 10, 20, 20, 20)]) == pytest.approx(0.3)


def test_every_draw_has_the_rate_that_is_asked_for() -> None:
    loads = [poisson(3.0, 200, ONE, ONE, Random(seed)) for seed in (1, 2)]
    loads.append(burst(5.0, 200, ONE, ONE, Random(3), size=10))
    shape = load_shape(loads, "three")
    for draw in range(3):
        assert rate_of(shape.at(2.5, draw)) == pytest.approx(2.5)
        assert shape.at(2.5, draw)[0].at_s == 0.0


def test_two_rates_of_a_shape_have_the_same_requests() -> None:
    shape = single_tokens(200, range(1))
    slow, fast = shape.at(1.0), shape.at(4.0)
    assert [one.at_s for one in slow] == pytest.approx([4 * one.at_s for one in fast])


def test_a_load_too_short_for_a_p99_or_without_a_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match="99 requests are too few for a 99th percentile: at least 100"):
        load_shape([constant(1.0, 99, ONE, ONE, Random(0))], "short")
    with pytest.raises(ConfigError, match="100 requests all come at once"):
        load_shape([closed(100, 1, 1)], "closed")


def test_stratified_lengths_have_the_laws_quantiles_whatever_the_seed() -> None:
    law = parse_lengths("uniform:1,1000")
    for seed in (0, 1):
        rng = Random(seed)
        strata = Stratified(law, 100, rng)
        drawn = [strata.draw(rng) for _ in range(100)]
        assert drawn != sorted(drawn)
        for rank, length in enumerate(sorted(drawn)):
            assert length == pytest.approx((rank + 0.5) * 10, abs=50)  # a uniform law's quantiles, with sampling error


def answers(waits_s: list[float], gap_s: float, refused: int = 0) -> list[Answer]:
    whole = [Answer(Arrival(i * gap_s, 1, 1), (i * gap_s + wait_s,), 1) for i, wait_s in enumerate(waits_s)]
    return whole + [Answer(Arrival(0.0, 1, 1), (), 0, "full")] * refused


def test_growth_is_the_overload_less_one() -> None:
    """Every 0.8 s comes somebody who takes 1 s: offered 1.25 times what can be done."""
    load = [Arrival(index * 0.8, 1, 1) for index in range(200)]
    outcome = simulate(load, Settings(max_num_seqs=1), "continuous", machine())
    assert growth_of(outcome.answers) == pytest.approx(0.25, rel=0.05)


def test_a_growing_queue_misses_though_its_p99_is_within_the_bound() -> None:
    growing = answers([0.1 * index for index in range(100)], 1.0)
    assert judge([Outcome(growing, 100.0)], 1.0, Slo(ttft_s=1000.0)).misses == ("growth",)
    level = answers([0.1] * 100, 1.0)
    assert judge([Outcome(level, 100.0)], 1.0, Slo(ttft_s=1000.0)).holds


def test_more_than_one_percent_refused_make_the_percentile_infinite() -> None:
    few, many = (
        judge([Outcome(answers([1.0] * 198, 1.0, refused), 198.0)], 1.0, Slo(ttft_s=2.0)) for refused in (1, 4)
    )
    assert few.holds
    assert (few.ttft_p99_s, few.num_refused) == (1.0, 1)
    assert many.misses == ("ttft",)
    assert math.isinf(many.ttft_p99_s)


def test_draws_are_judged_together() -> None:
    """One draw in which 3 % are late beside two in which nobody is: 1 % of all."""
    late, prompt = answers([9.0] * 3 + [1.0] * 97, 1.0), answers([1.0] * 100, 1.0)
    slo = Slo(ttft_s=2.0)
    assert not judge([Outcome(late, 100.0)], 1.0, slo).holds
    assert judge([Outcome(late, 100.0), *[Outcome(prompt, 100.0)] * 3], 1.0, slo).holds


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.7, 0.8, 0.9, 1.2])
def test_stopping_early_changes_no_verdict(rate: float) -> None:
    case, shape = Case(Settings(max_num_seqs=1), "continuous", machine()), single_tokens(300, range(2))
    loads = [shape.at(rate, draw) for draw in range(2)]
    slo = Slo(ttft_s=4.0)
    assert holds(case, loads, rate, slo) == probe(case, loads, rate, slo).holds


def test_a_token_per_step_is_the_tpot_that_is_bounded() -> None:
    case, shape = Case(Settings(), "continuous", machine()), steady(4, 11)
    probed = probe(case, [shape.at(0.01)], 0.01, Slo(tpot_s=0.99))
    assert probed.tpot_p99_s == pytest.approx(1.0)
    assert probed.misses == ("tpot",)
