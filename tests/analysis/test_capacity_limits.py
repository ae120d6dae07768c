"""What binds, where it is so by construction, and what a changed limit does to the rate."""

from __future__ import annotations

import pytest

from analysis.capacity_machines import machine, steady, ten_ms_a_token
from everystep.analysis.capacity import SloOutOfReach, num_rows, plan_capacity
from everystep.analysis.capacity_cases import Case, Change, WhatIf, halved_and_doubled, what_binds
from everystep.analysis.capacity_load import LoadShape
from everystep.analysis.capacity_plan import Plan, replicas_for
from everystep.analysis.capacity_usage import probe_with_usage
from everystep.analysis.outcome import Slo
from everystep.analysis.simulator import Machine
from everystep.config import Settings
from everystep.errors import ConfigError

PATIENT = Slo(ttft_s=20.0)


def row(plan: Plan, limit: str, factor: float) -> WhatIf:
    (found,) = (row for row in plan.what_if if (row.limit, row.factor) == (limit, factor))
    return found


def causes(server: Machine, settings: Settings, shape: LoadShape, rate: float) -> set[str]:
    """Why the head of the line waited, at a rate that is too high."""
    _, used = probe_with_usage(Case(settings, "continuous", server), [shape.at(rate)], rate, PATIENT)
    return set(used.waiting)


def test_seats_bind_where_a_step_costs_the_same_for_any_number_of_rows() -> None:
    """10 steps of a second on each of 4 seats: 4 requests in 10 s."""
    plan = plan_capacity(machine(), Settings(max_num_seqs=4), steady(20, 10), PATIENT, 1.0)
    assert plan.rates.highest == pytest.approx(0.4, rel=0.05)
    assert plan.binds == "seats"
    assert row(plan, "seats", 2.0).ratio == pytest.approx(2.0, rel=0.06)
    assert row(plan, "seats", 0.5).ratio == pytest.approx(0.5, rel=0.06)
    assert plan.replicas == 3
    assert causes(machine(), Settings(max_num_seqs=4), steady(20, 10), 0.5) == {"no_seat"}


def test_blocks_bind_where_the_cache_holds_few_sequences() -> None:
    """Requests of 4 blocks: 17 hold four of them and the spare one that an admission leaves, 34 hold eight."""
    settings = Settings(max_num_batched_tokens=4096)
    plan = plan_capacity(machine(num_blocks=17), settings, steady(96, 10), PATIENT, 1.0)
    assert plan.rates.highest == pytest.approx(0.4, rel=0.05)
    assert plan.binds == "KV blocks"
    assert row(plan, "KV blocks", 2.0).ratio == pytest.approx(2.0, rel=0.06)
    assert causes(machine(num_blocks=17), settings, steady(96, 10), 0.5) == {"no_blocks"}


def test_the_budget_binds_where_prompts_are_long_and_answers_are_one_token() -> None:
    """Prompts of 100 tokens, 200 tokens a step of a second: two requests a second."""
    settings = Settings(max_num_batched_tokens=200)
    plan = plan_capacity(machine(), settings, steady(100, 1, 500), PATIENT, 3.0)
    assert plan.rates.highest == pytest.approx(2.0, rel=0.05)
    assert plan.binds == "token budget"
    assert row(plan, "token budget", 2.0).ratio == pytest.approx(2.0, rel=0.06)
    assert plan.replicas == 2
    assert causes(machine(), settings, steady(100, 1), 2.5) == {"no_budget"}


def test_compute_binds_where_every_token_costs_the_same() -> None:
    """20 + 9 tokens of 10 ms each: a request takes 0.29 s of the machine, whoever keeps it company."""
    plan = plan_capacity(machine(ten_ms_a_token), Settings(), steady(20, 10), Slo(ttft_s=5.0), 7.0, headroom=0.25)
    assert plan.rates.highest == pytest.approx(1 / 0.29, rel=0.05)
    assert plan.binds == "compute"
    assert plan.rates.planned == pytest.approx(0.75 * plan.rates.highest)
    assert plan.replicas == 3
    assert plan.rates.each == pytest.approx(7 / 3)
    assert plan.requests_a_day_each == pytest.approx(plan.rates.planned * 24 * 3600)


def test_the_static_lane_is_held_back_by_its_rounds_and_the_law_says_how_much() -> None:
    """Rounds of 4 that last 10 steps: 0.4 requests a second, however the rest of the machine is."""
    plan = plan_capacity(machine(), Settings(max_num_seqs=8), steady(5, 10), Slo(ttft_s=60.0), 1.0)
    (static,) = (row for row in plan.policies if row.label == "static")
    assert plan.rates.highest == pytest.approx(0.8, rel=0.05)
    assert static.rate == pytest.approx(0.4, rel=0.05)
    assert static.replicas == 3
    assert (plan.round_law.seats, plan.round_law.round_s) == (4, 10.0)
    assert plan.round_law.rate == pytest.approx(0.4)
    assert plan.round_law.simulated_rate == pytest.approx(0.4)


def test_an_objective_that_a_lone_request_misses_is_refused_with_the_figures() -> None:
    with pytest.raises(SloOutOfReach, match=r"p99 of TTFT is 1 s, 0\.5 asked, for a lone request"):
        plan_capacity(machine(), Settings(), steady(20, 10), Slo(ttft_s=0.5), 1.0)


def test_a_request_that_never_fits_counts_as_one_that_takes_for_ever() -> None:
    with pytest.raises(SloOutOfReach, match="p99 of E2E is inf s"):
        plan_capacity(machine(num_blocks=2), Settings(), steady(60, 10), Slo(e2e_s=1000.0), 1.0)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("rate=0", {"offered_rate": 0.0}),
        ("headroom=1 must be", {"headroom": 1.0}),
        ("bounds nothing", {"slo": Slo()}),
    ],
)
def test_what_makes_no_plan_is_refused(words: str, arguments: dict[str, object]) -> None:
    given = {"offered_rate": 1.0, "slo": PATIENT} | arguments
    with pytest.raises(ConfigError, match=words):
        plan_capacity(machine(), Settings(), steady(20, 10), **given)  # type: ignore[arg-type]


def test_every_row_is_announced_and_an_extra_one_is_computed() -> None:
    heard: list[str] = []
    few, shape, server = Settings(max_num_seqs=2), steady(1, 4), machine()
    extra = [Change("max_num_seqs=6", Case(Settings(max_num_seqs=6), "continuous", server))]
    plan = plan_capacity(server, few, shape, PATIENT, 1.0, extra=extra, say=heard.append)
    assert len(heard) == num_rows(shape, few, "continuous", server, num_extra=1)
    assert plan.what_if[-1].label == "max_num_seqs=6"
    assert plan.what_if[-1].ratio == pytest.approx(3.0, rel=0.06)


def test_seats_and_budget_give_way_to_each_other() -> None:
    changes = halved_and_doubled(Case(Settings(max_num_seqs=64, max_num_batched_tokens=64), "continuous", machine()))
    found = {change.label: change.case.settings for change in changes}
    assert found["seats 64 → 128, budget 64 → 128"].max_num_batched_tokens == 128
    assert found["token budget 64 → 32, seats 64 → 32"].max_num_seqs == 32


def test_a_single_seat_has_nothing_to_halve_and_an_unbounded_budget_has_no_rows() -> None:
    changes = halved_and_doubled(Case(Settings(static_batch_size=1), "static", machine()))
    assert [(change.limit, change.factor) for change in changes] == [
        ("seats", 2.0),
        ("KV blocks", 0.5),
        ("KV blocks", 2.0),
    ]


def test_a_doubling_that_gives_little_binds_nobody() -> None:
    def rows(ratio: float) -> list[WhatIf]:
        return [WhatIf("seats × 2", 1.0, ratio, 1, "seats", 2.0), WhatIf("seats × ½", 9.0, 9.0, 1, "seats", 0.5)]

    assert what_binds(rows(1.04)) == "compute"
    assert what_binds(rows(1.06)) == "seats"


@pytest.mark.parametrize(("offered", "planned", "replicas"), [(10, 3, 4), (9, 3, 3), (0.3, 0.1, 3), (0.01, 5, 1)])
def test_replicas_are_the_offered_rate_over_the_planned_one_rounded_up(
    offered: float, planned: float, replicas: int
) -> None:
    assert replicas_for(offered, planned) == replicas
