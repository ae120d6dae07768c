"""A plan as tables, closing lines and JSON.

Owns the words and the rounding.  Ignorant of how a plan is made.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from everystep.analysis.calibration import Calibration
from everystep.analysis.capacity_cases import WhatIf
from everystep.analysis.capacity_plan import Plan
from everystep.analysis.capacity_probe import Probe
from everystep.bench.tables import NONE, Table, a_day, figure

CAUSES = {
    "no_seat": "for a seat",
    "no_budget": "for the token budget",
    "no_blocks": "for KV blocks",
    "round_running": "for the round to end",
    "behind": "behind another",
}


def tables(plan: Plan) -> list[Table]:
    return [fleet_table(plan), latency_table(plan), usage_table(plan), what_if_table(plan)]


def fleet_table(plan: Plan) -> Table:
    """What one replica takes and how many are needed."""
    rates = plan.rates
    spread = f"{figure(min(rates.by_draw))} to {figure(max(rates.by_draw))}" if len(rates.by_draw) > 1 else NONE
    rows = (
        ("offered in all, requests/s", figure(rates.offered), f"{a_day(rates.offered)} a day"),
        ("highest rate of a replica, requests/s", figure(rates.highest), f"draw by draw {spread}"),
        ("planned for a replica, requests/s", figure(rates.planned), f"{rates.headroom:.0%} left free"),
        ("replicas", str(plan.replicas), f"each gets {figure(rates.each)} requests/s"),
        ("requests a day of a replica", a_day(rates.planned), f"{a_day(rates.planned * plan.replicas)} in all"),
        ("everybody there at once, requests/s", figure(rates.saturated), "no objective, a replica's"),
        ("what binds", plan.binds, "the limit whose doubling gives most"),
    )
    return Table(f"Plan for {plan.policy}: {plan.load}", ("", "value", "remark"), rows)


def latency_table(plan: Plan) -> Table:
    """The 99th percentiles, from a lone request to a tenth too many."""
    rows = (
        ("asked", NONE, _bound(plan.slo.ttft_s), _bound(plan.slo.tpot_s), _bound(plan.slo.e2e_s), NONE, NONE),
        _latencies("alone", plan.alone, NONE),
        _latencies(f"each of {plan.replicas}", plan.at_each),
        _latencies("planned", plan.at_planned),
        _latencies("a tenth over the highest", plan.above),
    )
    head = ("p99 in seconds", "requests/s", "TTFT", "TPOT", "E2E", "queue grows, s/s", "misses")
    return Table("Simulated latencies of a replica", head, rows)


def _latencies(label: str, probe: Probe, rate: str | None = None) -> tuple[str, ...]:
    seconds = (probe.ttft_p99_s, probe.tpot_p99_s, probe.e2e_p99_s)
    misses = ", ".join(probe.misses) or NONE
    return (label, rate or figure(probe.rate), *map(_seconds, seconds), f"{max(0.0, probe.growth):.3f}", misses)


def usage_table(plan: Plan) -> Table:
    """What a replica is busy with at the planned rate."""
    used = plan.usage
    causes = [f"{CAUSES[cause]} {_share(share)}" for cause, share in used.waiting.items()]
    rows = (
        ("time in a step", _share(used.busy)),
        ("seats computing, of all", _share(used.seats)),
        *((("seats held by ended rows", _share(used.held)),) if used.held else ()),
        *((("token budget spent", _share(used.budget)),) if used.budget is not None else ()),
        ("KV blocks filled (at the peak)", f"{_share(used.blocks)} ({_share(used.blocks_peak)})"),
        ("requests in the replica (Little's law)", figure(used.in_system)),
        ("longest line", str(used.longest_line)),
        ("preemptions", str(used.preemptions)),
        ("somebody waited, share of step time", "; ".join(causes) or "never"),
    )
    return Table("At the planned rate, means over step time", ("", "value"), rows)


def what_if_table(plan: Plan) -> Table:
    """One thing changed, the same requests."""
    base = WhatIf("as planned", plan.rates.highest, 1.0, plan.replicas, None, None)
    rows = tuple(_what_if(row) for row in (base, *plan.what_if, *plan.policies))
    return Table("What if", ("", "requests/s of a replica", "× planned", "replicas"), rows)


def _what_if(row: WhatIf) -> tuple[str, ...]:
    if row.rate == 0.0:
        return (row.label, "out of reach", "< 0.1", NONE)
    return (row.label, figure(row.rate), f"{row.ratio:.2f}", str(row.replicas))


def closing_lines(plan: Plan) -> list[str]:
    """The round law, how much was simulated, and what to be wary of."""
    law = plan.round_law
    return [
        f"Round law: static, {law.seats} seats, {figure(law.round_s)} s a round, so {figure(law.rate)} requests/s at "
        f"most; simulated, everybody there at once: {figure(law.simulated_rate)}",
        f"Simulated: {plan.num_draws} × {plan.num_requests} requests over {figure(plan.span_s)} s at the planned rate; "
        f"{plan.num_rates_tried} rates tried",
        *plan.notes,
    ]


def as_json_object(plan: Plan, calibration: Calibration) -> dict[str, Any]:
    """Every figure of the plan and whose it is; an infinite one is null."""
    whose = {name: getattr(calibration, name) for name in ("model", "runner", "precision", "num_threads")}
    finite = _finite(asdict(plan))
    assert isinstance(finite, dict)
    return {"schema": 1, "machine": {**whose, "environment": calibration.environment}, **finite}


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bound(value: float | None) -> str:
    return NONE if value is None else _seconds(value)


def _seconds(value: float) -> str:
    return "refused" if math.isinf(value) else figure(value)


def _share(value: float) -> str:
    return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
