"""A simulated benchmark as tables.

Owns what stands in which column.  Reads the result alone.  Ignorant of where it is shown.
"""

from __future__ import annotations

from everystep.bench.results import Result, Run
from everystep.bench.tables import NONE, Table, figure, seconds

LATENCIES = (
    ("ttft_s", "p50"), ("ttft_s", "p95"), ("ttft_s", "p99"), ("tpot_s", "p50"), ("tpot_s", "p99"), ("e2e_s", "p50"),
    ("e2e_s", "p99"),
)  # fmt: skip
KEPT_UP = {True: "no", False: "yes", None: "too few to tell"}


def tables(result: Result) -> list[Table]:
    """Throughput and seats, then latencies.  All runs are of closed loads, or all of open ones."""
    runs = result["runs"]
    is_open = runs[0]["rate"] is not None
    return [_open_table(runs) if is_open else _closed_table(runs), _latency_table(runs)]


def _closed_table(runs: list[Run]) -> Table:
    head = ("policy", "N", "seconds", *_THROUGHPUT)
    return Table("Simulated: N prompts at once", head, tuple((*_name(run), *_throughput(run)) for run in runs))


def _open_table(runs: list[Run]) -> Table:
    head = ("policy", "rate", "requests", "seconds", *_THROUGHPUT, "kept up")
    rows = [(*_name(run), str(run["n"]), *_throughput(run), KEPT_UP[run["is_saturated"]]) for run in runs]
    return Table("Simulated: an open load", head, tuple(rows))


_THROUGHPUT = ("requests/s", "tokens/s", "goodput/s", "good", "failed", "seats working/held/empty")


def _throughput(run: Run) -> tuple[str, ...]:
    """From ``seconds`` on."""
    good = run["slo_share"]
    return (
        figure(run["wall_s"]),
        figure(run["requests_per_s"]),
        figure(run["output_tokens_per_s"]),
        seconds(run["goodput_per_s"]),
        NONE if good is None else f"{good:.0%}",
        str(run["num_failed"]),
        "/".join(str(count) for count in run["seat_steps"].values()),
    )


def _latency_table(runs: list[Run]) -> Table:
    first = "N" if runs[0]["rate"] is None else "rate"
    head = ("policy", first, *(f"{name.removesuffix('_s').upper()} {share}" for name, share in LATENCIES))
    rows = [(*_name(run), *(seconds(run[name][share]) for name, share in LATENCIES)) for run in runs]
    return Table("Latencies (seconds), of whole answers", head, tuple(rows))


def _name(run: Run) -> tuple[str, str]:
    return run["policy"], str(run["n"]) if run["rate"] is None else f"{run['rate']:.3g}"
