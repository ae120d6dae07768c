"""From passes to the result file.

Owns the shape of ``bench.json`` (schema 1) and its CSV.  Ignorant of how anything was measured and of how it is shown.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from everystep.analysis.percentiles import PERCENTILES, paired_ratio, summary
from everystep.bench.closed import Measured
from everystep.bench.passes import SEAT_STATES, e2e_s, itl_s, tpot_s, ttft_s

SCHEMA = 1
BASELINE = ("hf-generate", "static")  # (engine, policy): written by hand, before anybody schedules anything
OWN_STATIC = ("everystep", "static")
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
CLIENT_LIMIT = 0.2  # of a core, during a pass: above it the client took part in what it measured
PLAIN_COLUMNS = (
    "engine", "policy", "label", "n", "rate", "wall_s", "requests_per_s", "output_tokens_per_s", "predicted_wall_s",
)  # fmt: skip
CLOSED_COLUMNS = ("ratio_to_static", "ratio_to_baseline", "spread")
OPEN_COLUMNS = (
    "offered_per_s", "goodput_per_s", "slo_share", "num_failed", "is_saturated", "unserved_share", "client_cores",
)  # fmt: skip

Run = dict[str, Any]
Result = dict[str, Any]


def runs_of(cells: Sequence[Measured], max_tokens: int) -> list[Run]:
    """All contenders' runs at one N.  Medians over rounds; latencies over every prompt of every round."""
    by_name = {(cell.contender.engine, cell.contender.policy): cell.walls_s for cell in cells}
    return [
        _run(cell, max_tokens)
        | {
            "ratio_to_static": _ratio(by_name.get(OWN_STATIC), cell),
            "ratio_to_baseline": _ratio(by_name.get(BASELINE), cell),
        }
        for cell in cells
    ]


def _run(cell: Measured, max_tokens: int) -> Run:
    wall_s = statistics.median(cell.walls_s)
    client_cores = max(one.client_cpu_s / one.wall_s for one in cell.passes)
    return {
        "engine": cell.contender.engine,
        "policy": cell.contender.policy,
        "label": cell.contender.label,
        "n": cell.n,
        "rate": None,
        "wall_s": wall_s,
        "requests_per_s": cell.n / wall_s,
        "output_tokens_per_s": cell.n * max_tokens / wall_s,
        "ttft_s": summary([value for one in cell.passes for value in ttft_s(one)]),
        "tpot_s": summary([value for one in cell.passes for value in tpot_s(one, max_tokens)]),
        "itl_s": summary([value for one in cell.passes for value in itl_s(one)]),
        "e2e_s": summary([value for one in cell.passes for value in e2e_s(one)]),
        "predicted_wall_s": None,
        "seat_steps": cell.typical.seat_steps or dict.fromkeys(SEAT_STATES),
        "walls_s": cell.walls_s,
        "spread": (max(cell.walls_s) - min(cell.walls_s)) / wall_s,
        "client_cores": client_cores,
    }


def _ratio(base: list[float] | None, cell: Measured) -> float | None:
    """How many times as fast as the base, paired round by round; ``None`` where the base wasn't measured."""
    return None if base is None else paired_ratio(base, cell.walls_s)


def client_notes(runs: Sequence[Run]) -> list[str]:
    """A line where the client was busy enough to matter."""
    busiest = max(runs, key=lambda run: float(run["client_cores"]), default=None)
    if busiest is None or busiest["client_cores"] <= CLIENT_LIMIT:
        return []
    return [
        f"the client itself took {busiest['client_cores']:.0%} of a core at {busiest['label']}, N = {busiest['n']}: "
        "that figure holds the client's own work"
    ]


def result_of(
    environment: dict[str, Any],
    settings: dict[str, Any],
    contenders: list[dict[str, object]],
    absent: list[str],
    notes: list[str],
    runs: list[Run],
) -> Result:
    """The whole file.  ``contenders``, ``absent`` and ``notes`` are beyond the contract."""
    return {
        "schema": SCHEMA,
        "environment": environment,
        "settings": settings,
        "contenders": contenders,
        "absent": absent,
        "notes": notes,
        "runs": runs,
    }


def csv_of(runs: Sequence[Run]) -> str:
    """A line a run; latencies as ``ttft_p50_s`` and so on.  The runs are all of closed loads, or all of open ones."""
    out = io.StringIO()
    rows = [dict(_flat(run)) for run in runs]
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(run: Run) -> Iterator[tuple[str, object]]:
    for name in PLAIN_COLUMNS:
        yield name, run[name]
    for name in LATENCIES:
        for share in PERCENTILES:
            yield f"{name.removesuffix('_s')}_{share}_s", run[name][share]
    for state in SEAT_STATES:
        yield f"seat_steps_{state}", run["seat_steps"][state]
    is_open = run["rate"] is not None
    for name in OPEN_COLUMNS if is_open else CLOSED_COLUMNS:
        yield name, run[name]
    if is_open:
        lags_s = run["lag_s"] or dict.fromkeys(("p99", "max"))
        yield from ((f"lag_{share}_s", value) for share, value in lags_s.items())
        yield "failures", " ".join(f"{kind}:{number}" for kind, number in run["failures"].items())
    else:
        yield "walls_s", " ".join(f"{wall_s:.4f}" for wall_s in run["walls_s"])
