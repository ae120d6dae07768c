"""Latencies, goodput and the summary of an outcome, computed by hand."""

import pytest

from everystep.analysis.load import Arrival
from everystep.analysis.outcome import Answer, Outcome, Slo
from everystep.analysis.summary import summarise


def answer(at_s, times_s, *, asked=None, error=None):
    return Answer(Arrival(at_s, 10, len(times_s) if asked is None else asked), times_s, len(times_s), error)


QUICK = answer(1.0, [2.0, 2.5, 3.0])  # TTFT 1, gaps 0.5, E2E 2
SLOW = answer(1.0, [4.0, 5.0, 6.0, 9.0])  # TTFT 3, TPOT 5/3, E2E 8
SHORT = answer(2.0, [3.5])  # TTFT = E2E 1.5, no TPOT
CUT = answer(0.0, [1.0, 2.0], asked=5)
REFUSED = answer(0.0, [], asked=5, error="the prompt has 9000 tokens")


def test_latencies_count_from_the_scheduled_arrival():
    assert (QUICK.ttft_s, QUICK.tpot_s, QUICK.itl_s, QUICK.e2e_s) == (1.0, 0.5, [0.5, 0.5], 2.0)
    assert (SLOW.ttft_s, SLOW.tpot_s, SLOW.itl_s, SLOW.e2e_s) == (3.0, pytest.approx(5 / 3), [1.0, 1.0, 3.0], 8.0)
    assert (SHORT.ttft_s, SHORT.tpot_s, SHORT.itl_s, SHORT.e2e_s) == (1.5, None, [], 1.5)


def test_figures_are_over_whole_answers_and_rates_over_the_wall():
    figures = summarise(Outcome([QUICK, SLOW, SHORT, CUT, REFUSED], 10.0, {"working": 7, "held": 2, "empty": 1}))
    assert figures["wall_s"] == 10.0
    assert figures["requests_per_s"] == pytest.approx(0.3)
    assert figures["output_tokens_per_s"] == pytest.approx(1.0)  # 3 + 4 + 1 + 2 in 10 s
    assert figures["num_failed"] == 2
    assert figures["ttft_s"]["p50"] == 1.5
    assert figures["ttft_s"]["p95"] == pytest.approx(2.85)  # between 1.5 and 3, a tenth below
    assert figures["e2e_s"]["p50"] == 2.0
    assert figures["tpot_s"]["p50"] == pytest.approx((0.5 + 5 / 3) / 2)  # of the two that have one
    assert figures["itl_s"]["p50"] == 1.0  # of 0.5, 0.5, 1, 1, 3
    assert figures["seat_steps"] == {"working": 7, "held": 2, "empty": 1}


def test_goodput_counts_requests_that_keep_every_bound():
    outcome = Outcome([QUICK, SLOW, SHORT, CUT, REFUSED], 10.0)
    strict = summarise(outcome, Slo(ttft_s=1.25, tpot_s=0.5))
    assert (strict["goodput_per_s"], strict["slo_share"]) == (pytest.approx(0.1), pytest.approx(0.2))
    wide = summarise(outcome, Slo(ttft_s=1.5, tpot_s=0.5))  # SHORT has no TPOT that could break the bound
    assert (wide["goodput_per_s"], wide["slo_share"]) == (pytest.approx(0.2), pytest.approx(0.4))
    by_end = summarise(outcome, Slo(e2e_s=8.0))
    assert by_end["slo_share"] == pytest.approx(0.6)


def test_nothing_measured_is_none_and_no_seats_are_none():
    figures = summarise(Outcome([REFUSED], 0.0))
    assert figures["ttft_s"] == {"p50": None, "p95": None, "p99": None}
    assert figures["seat_steps"] == {"working": None, "held": None, "empty": None}
    assert (figures["requests_per_s"], figures["num_failed"]) == (0.0, 1)
    assert (figures["goodput_per_s"], figures["slo_share"]) == (None, None)


def test_nobody_keeps_an_objective_of_a_load_of_nobody():
    assert summarise(Outcome([], 0.0), Slo(ttft_s=1.0))["slo_share"] is None
