"""The balance sheet of a soak: what was held, done to the server, lost, and how its memory went.

Owns the figures that are made from the samples, the JSON and the tables.  Ignorant of how anything was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.stats import theilslopes
from soak_harm import Harm
from soak_ledger import End, Ledger
from soak_watch import Held, Sample

JUDGED_AFTER_S = 15 * 60.0  # memory isn't judged by less
WARM_UP = 1 / 3  # of a process's life: the step log and the request log are full then
FEWEST_SAMPLES = 20
MOST_POINTS = 600  # a slope is the median over all pairs of them
HOUR_S = 3600.0


@dataclass(frozen=True)
class Growth:
    """Memory of one process, after its warm-up."""

    who: str
    span_s: float
    first_mib: float
    last_mib: float
    peak_mib: float
    mib_per_hour: float  # Theil and Sen's slope: the median over all pairs of samples
    low: float  # of its 95 % interval
    high: float
    max_fds: int
    max_threads: int


def growth(who: str, points: Sequence[tuple[float, Held]]) -> Growth | None:
    """``None`` where it was seen too briefly."""
    if len(points) < FEWEST_SAMPLES:
        return None
    warm = points[int(len(points) * WARM_UP) :]
    thin = warm[:: max(1, len(warm) // MOST_POINTS)]
    slope, _, low, high = theilslopes([held.uss_mib for _, held in thin], [at_s for at_s, _ in thin])
    return Growth(
        who,
        warm[-1][0] - warm[0][0],
        warm[0][1].uss_mib,
        warm[-1][1].uss_mib,
        max(held.rss_mib for _, held in points),
        float(slope) * HOUR_S,
        float(low) * HOUR_S,
        float(high) * HOUR_S,
        max(held.num_fds for _, held in points),
        max(held.num_threads for _, held in points),
    )


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Of the server, and of the last worker."""
    server = [(sample.at_s, sample.server) for sample in samples if sample.server]
    workers = [(sample.at_s, sample.worker) for sample in samples if sample.worker]
    last = [(at_s, held) for at_s, held in workers if held.pid == workers[-1][1].pid]
    found = [growth("server", server), growth("last worker", last)]
    return [each for each in found if each is not None]


def course(samples: Sequence[Sample]) -> list[dict[str, float | None]]:
    """Memory over time, thinned, for whoever wants to draw it."""
    thin = samples[:: 1 + len(samples) // MOST_POINTS]
    return [
        {
            "at_s": round(sample.at_s - samples[0].at_s, 1),
            "server_mib": round(sample.server.uss_mib, 2) if sample.server else None,
            "worker_mib": round(sample.worker.uss_mib, 2) if sample.worker else None,
            "num_open": sample.num_open,
        }
        for sample in thin
    ]


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    if len(values) < 2:
        return dict.fromkeys(("median", "p99", "max"), max(values, default=None))
    return {"median": statistics.median(values), "p99": statistics.quantiles(values, n=100)[98], "max": max(values)}


def recovery(harms: Sequence[Harm]) -> dict[str, Any]:
    """Times to readiness, by kind of harm: median and worst."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(harm.kind for harm in harms):
        ready = [harm.ready_s for harm in harms if harm.kind == kind and harm.ready_s is not None]
        told = [harm.last_told_s for harm in harms if harm.kind == kind and harm.last_told_s is not None]
        found[kind] = {
            "times": sum(harm.kind == kind for harm in harms),
            "ready_median_s": statistics.median(ready) if ready else None,
            "ready_worst_s": max(ready, default=None),
            "last_client_told_worst_s": max(told, default=None),
            "requests_that_died": sum(harm.num_died for harm in harms if harm.kind == kind),
        }
    return found


def sheet(result: dict[str, Any]) -> str:
    """The result as text for a terminal."""
    lines = [f"Soak of {result['minutes']:.1f} minutes, seed {result['seed']}: {result['about']}", ""]
    for title, rows in (
        ("load held", result["load"]),
        ("ends of requests", {name: n for name, n in result["book"]["ends"].items() if n}),
        ("faults, by kind", result["faults"]),
        ("bad input tried", result["bad_input"]),
        ("must be 0", result["must_be_0"]),
    ):
        lines += [f"{title}:", *(f"  {name:<58} {_figure(value):>10}" for name, value in rows.items()), ""]
    lines += [_recovery_line(kind, one) for kind, one in result["recovery"].items()]
    lines += [_memory_line(one) for one in result["memory"]]
    lines += ["", *_violations(result["violations"])]
    return "\n".join(lines)


def _recovery_line(kind: str, one: dict[str, Any]) -> str:
    return (
        f"{kind}: {one['times']} times, ready again in {_figure(one['ready_median_s'])} s (median), "
        f"{_figure(one['ready_worst_s'])} s (worst); {one['requests_that_died']} requests died with it, "
        f"the last client told after {_figure(one['last_client_told_worst_s'])} s (worst)"
    )


def _memory_line(one: dict[str, Any]) -> str:
    is_short = "" if one["span_s"] >= JUDGED_AFTER_S else ", too short a time to judge it"
    return (
        f"{one['who']}: {one['first_mib']:.1f} → {one['last_mib']:.1f} MiB (USS) in {one['span_s'] / 60:.1f} min, "
        f"{one['mib_per_hour']:+.1f} MiB/h (95 %: {one['low']:+.1f} to {one['high']:+.1f}{is_short}); "
        f"at most {one['max_fds']} files, {one['max_threads']} threads, RSS {one['peak_mib']:.0f} MiB"
    )


def _violations(found: dict[str, Any]) -> list[str]:
    if not found:
        return ["all in order"]
    lines = []
    for line, one in found.items():
        lines += [f"VIOLATED: {line}: {one['times']}", *(f"    {words:.400}" for words in one["examples"])]
    return lines


def _figure(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def must_be_0(ledger: Ledger) -> dict[str, int]:
    """What may never be, the usual suspects by name."""
    usual = {
        "requests lost": ledger.total(End.LOST),
        "requests hung": ledger.total(End.HUNG),
        "requests without an end": ledger.num_violations["requests without an end"],
        "texts that differ": ledger.num_violations["texts that differ"],
        "scrapes that don't balance": ledger.num_violations["scrapes that don't balance"],
        "blocks that leaked": ledger.num_violations["blocks that leaked"],
        "orphans": ledger.num_violations["orphans"],
    }
    others = sum(
        n for line, n in ledger.num_violations.items() if line not in usual and not line.startswith("requests ")
    )
    return usual | {"other violations": others}


def as_rows(found: Sequence[Growth]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]
