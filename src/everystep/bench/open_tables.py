"""Open loads as tables: what each contender did at each rate, and what its clients felt.

Owns what stands in which column.  Reads the result file alone.  Ignorant of where it is shown.
"""

from __future__ import annotations

from typing import Any

from everystep.bench.results import Result, Run
from everystep.bench.tables import NONE, Table, a_day, figure, seconds

RATES_HEAD = (
    "contender", "rate", "came/s", "requests", "requests/s", "tokens/s", "goodput/s", "good", "failed",
    "seats working/held/empty", "kept up",
)  # fmt: skip
LATENCIES = (
    ("ttft_s", "p50"), ("ttft_s", "p95"), ("ttft_s", "p99"), ("tpot_s", "p50"), ("tpot_s", "p99"), ("itl_s", "p99"),
    ("e2e_s", "p50"), ("e2e_s", "p99"),
)  # fmt: skip
KEPT_UP = {True: "no", False: "yes", None: "too few to tell"}


def rates_table(result: Result) -> Table:
    """Throughput, goodput and failures by contender and rate."""
    return Table(f"Open load: {load_words(result)}", RATES_HEAD, tuple(_rates(run) for run in _by_rate(result)))


def _rates(run: Run) -> tuple[str, ...]:
    seats = "/".join(NONE if count is None else str(count) for count in run["seat_steps"].values())
    return (
        run["label"],
        f"{run['rate']:.3g}",
        seconds(run["offered_per_s"]),
        str(run["n"]),
        figure(run["requests_per_s"]),
        figure(run["output_tokens_per_s"]),
        seconds(run["goodput_per_s"]),
        NONE if run["slo_share"] is None else f"{run['slo_share']:.0%}",
        failed_words(run["failures"]) or "0",
        seats,
        KEPT_UP[run["is_saturated"]],
    )


def latency_table(result: Result) -> Table:
    """Of whole answers, from when each request was due to be sent."""
    head = ("contender", "rate", *(f"{name.removesuffix('_s').upper()} {share}" for name, share in LATENCIES))
    rows = [
        (run["label"], f"{run['rate']:.3g}", *(seconds(run[name][share]) for name, share in LATENCIES))
        for run in _by_rate(result)
    ]
    return Table("Latencies (seconds) from the scheduled send", head, tuple(rows))


def _by_rate(result: Result) -> list[Run]:
    return sorted(result["runs"], key=lambda run: float(run["rate"]))


def load_line(result: Result) -> str:
    """The load and the objective, as a sentence."""
    return f"Load: {load_words(result)}"


def load_words(result: Result) -> str:
    settings: dict[str, Any] = result["settings"]
    is_made_up = settings["dataset"] in ("fixed", "lognormal")
    lengths = f"{settings['prompt_tokens']} prompt and {settings['output_tokens']} output tokens"
    trace = f"times × {settings['time_scale']:g}, lengths × {settings['length_scale']:g}"
    words = [settings["arrivals"], settings["dataset"], lengths] if is_made_up else [settings["dataset"], trace]
    bounds = {name: limit for name, limit in settings["slo"].items() if limit is not None}
    words += [f"{name.removesuffix('_s').upper()} ≤ {limit:g} s" for name, limit in bounds.items()]
    return ", ".join(words)


def day_line(result: Result) -> str:
    """What each would answer in a day, at the highest rate that it kept up with."""
    best: dict[str, Run] = {}
    for run in _by_rate(result):
        if not run["is_saturated"]:
            best[run["label"]] = run
    words = [f"{label} {a_day(run['requests_per_s'])} (at {run['rate']:.3g}/s)" for label, run in best.items()]
    return f"Requests a day at the highest rate kept up with: {'; '.join(words) or 'nobody kept up with any'}"


def failed_words(failed: dict[str, int]) -> str:
    """``3 × 429, 1 × broken``."""
    return ", ".join(f"{number} × {kind}" for kind, number in sorted(failed.items()))
