"""Results as tables: the write-up's two, with ratios and requests per day, and the latencies.

Owns what stands in which column and how a figure is rounded.  Reads the result file alone, so that a table can be made
again without a measurement.  Ignorant of where it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everystep.bench.results import Result, Run

SECONDS_A_DAY = 86_400
NONE = "–"

ENGLISH = {
    "seconds": "Seconds until all N answers are there",
    "rates": "Requests per second",
    "contender": "contender",
    "static": "× static",
    "baseline": "× hf-generate",
    "day": "requests a day",
    "at": "at N = {n}",
}
KOREAN = {
    "seconds": "N개의 답이 모두 올 때까지 걸린 시간(초)",
    "rates": "초당 요청 수",
    "contender": "대상",
    "static": "static 대비",
    "baseline": "hf-generate 대비",
    "day": "하루 요청 수",
    "at": "N = {n}에서",
}


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sizes(result: Result) -> list[int]:
    return sorted({int(run["n"]) for run in result["runs"]})


def names(result: Result) -> list[tuple[str, str]]:
    """(engine, policy) of every contender, in the order of the runs."""
    return list(dict.fromkeys((run["engine"], run["policy"]) for run in result["runs"]))


def seconds_table(result: Result, words: dict[str, str]) -> Table:
    """Wall time by contender and N, with both ratios at the smallest and the largest N."""
    ns = sizes(result)
    edges = sorted({ns[0], ns[-1]})
    head = [words["contender"], *(f"N = {n}" for n in ns)]
    head += [f"{words[base]}, N = {n}" for base in ("static", "baseline") for n in edges]
    rows = []
    for name in names(result):
        runs = _by_n(result, name)
        cells = [seconds(runs[n]["wall_s"]) for n in ns]
        cells += [_times(runs[n][f"ratio_to_{base}"]) for base in ("static", "baseline") for n in edges]
        rows.append((runs[ns[0]]["label"], *cells))
    return Table(words["seconds"], tuple(head), tuple(rows))


def rates_table(result: Result, words: dict[str, str]) -> Table:
    """Requests per second by contender and N, and what that makes in a day at the largest N."""
    ns = sizes(result)
    head = [words["contender"], *(f"N = {n}" for n in ns), f"{words['day']}, N = {ns[-1]}"]
    rows = []
    for name in names(result):
        runs = _by_n(result, name)
        rates = [runs[n]["requests_per_s"] for n in ns]
        rows.append((runs[ns[0]]["label"], *map(figure, rates), a_day(rates[-1])))
    return Table(words["rates"], tuple(head), tuple(rows))


def latency_table(result: Result) -> Table:
    """What a single prompt of the N felt: medians, and the 99th percentile of the whole answer."""
    head = (
        "contender",
        "N",
        "TTFT p50",
        "TPOT p50",
        "ITL p99",
        "E2E p50",
        "E2E p99",
        "seats working/held/empty",
        "spread",
    )
    rows = tuple(_latencies(run) for run in sorted(result["runs"], key=lambda run: int(run["n"])))
    return Table("Latencies (seconds), seat-steps of a pass, spread of wall time over rounds", head, rows)


def _latencies(run: Run) -> tuple[str, ...]:
    times = (("ttft_s", "p50"), ("tpot_s", "p50"), ("itl_s", "p99"), ("e2e_s", "p50"), ("e2e_s", "p99"))
    seats = "/".join(NONE if count is None else str(count) for count in run["seat_steps"].values())
    waits = [seconds(run[name][share]) for name, share in times]
    spread = f"{run['spread']:.0%}" if len(run["walls_s"]) > 1 else NONE
    return (run["label"], str(run["n"]), *waits, seats, spread)


def markdown(table: Table) -> str:
    """Without the title."""
    lines = [table.head, ("---",) * len(table.head), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine_line(result: Result) -> str:
    """The machine, the day and the source, in one line."""
    env: dict[str, Any] = result["environment"]
    commit, is_changed = str(env["git_commit"] or "")[:12], str(env["git_commit"]).endswith("+")
    parts = [
        f"{env['usable_cpus']} cores of {env['cpu']} (family {env['cpu_family']}, model {env['cpu_model']})",
        " ".join(env["cpu_flags"]) or "no flags known",
        f"{env['memory_gib']} GiB",
        f"Python {env['python']}",
        str(env["date"])[:10],
        f"commit {commit}{' with changes' if is_changed else ''}" if commit else f"everystep {env['everystep']}",
    ]
    return ", ".join(parts)


def contender_lines(result: Result) -> list[str]:
    """What computed, in which precision and releases; contenders that share a server share a line."""
    labels: dict[str, list[str]] = {}
    for one in result["contenders"]:
        releases = [f"{name} {release}" for name, release in one["versions"].items() if release]
        labels.setdefault(", ".join([one["about"], *releases]), []).append(one["label"])
    return [f"{'; '.join(names)}: {about}" for about, names in labels.items()]


def seconds(value: float | None) -> str:
    return NONE if value is None else figure(value)


def figure(value: float) -> str:
    """Three digits that count, never in powers of ten."""
    if value >= 100:
        return f"{value:.0f}"
    decimals = next((places for places in range(1, 6) if value >= 10.0 ** (2 - places)), 6)
    return f"{value:.{decimals}f}"


def a_day(requests_per_s: float) -> str:
    """Requests a day, to three digits that count: 276,000."""
    requests = requests_per_s * SECONDS_A_DAY
    digits = len(f"{requests:.0f}")
    return f"{round(requests, min(0, 3 - digits)):,.0f}"


def _times(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def _by_n(result: Result, name: tuple[str, str]) -> dict[int, Run]:
    return {int(run["n"]): run for run in result["runs"] if (run["engine"], run["policy"]) == name}
