"""Output tokens per second against N, a line per contender.

Owns the first thing to look at.  Reads closed loads alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from everystep.bench.figures.loads import Name, closed_load, closed_runs, names_of, small_print
from everystep.bench.figures.look import (
    End,
    Result,
    Run,
    framed,
    label_ends,
    label_room_in,
    log_seconds,
    log_sizes,
    strokes,
)
from everystep.bench.tables import figure as digits


def throughput_figure(result: Result) -> Figure | None:
    """``None`` where no closed load was measured at two sizes or more.  A size that a contender lacks is a gap."""
    runs = closed_runs(result)
    ns = sorted({int(run["n"]) for run in runs})
    if len(ns) < 2:
        return None
    looks = strokes(names_of(runs))
    lines = {name: rates_at(runs, name, ns) for name in looks}
    words = {name: f"{_label(runs, name)}  {digits(_last(ns, rates)[1])}" for name, rates in lines.items()}
    figure = framed(
        4.9,
        _title(runs, ns[-1]),
        small_print(result, closed_load(result)),
        right_in=label_room_in(list(words.values())),
    )
    axes = figure.add_subplot()
    axes.set_xlabel("N, prompts sent at once")
    axes.set_ylabel("output tokens per second")
    log_sizes(axes, ns)
    for name, look in looks.items():
        axes.plot(ns, lines[name], color=look.colour, marker=look.marker, linestyle=look.dashes, ms=6, lw=1.6)
    log_seconds(axes)
    label_ends(axes, [End(*_last(ns, lines[name]), words[name], look.colour) for name, look in looks.items()])
    return figure


def rates_at(runs: Sequence[Run], name: Name, ns: Sequence[int]) -> list[float]:
    """Tokens per second at each N; NaN, which draws nothing, where there is no figure."""
    by_n = {int(run["n"]): run["output_tokens_per_s"] for run in runs if (run["engine"], run["policy"]) == name}
    return [math.nan if by_n.get(n) is None else float(by_n[n]) for n in ns]


def _last(ns: Sequence[int], rates: Sequence[float]) -> tuple[int, float]:
    """Where a line ends."""
    return [pair for pair in zip(ns, rates, strict=True) if not math.isnan(pair[1])][-1]


def _label(runs: Sequence[Run], name: Name) -> str:
    return next(str(run["label"]) for run in runs if (run["engine"], run["policy"]) == name)


def _title(runs: Sequence[Run], n: int) -> str:
    at_n = sorted((run for run in runs if run["n"] == n), key=lambda run: float(run["output_tokens_per_s"]))
    slow, quick = at_n[0], at_n[-1]
    if slow is quick:
        return f"{quick['label']}: {digits(quick['output_tokens_per_s'])} tokens a second at N = {n}"
    times = quick["output_tokens_per_s"] / slow["output_tokens_per_s"]
    return f"At N = {n}, {quick['label']} makes {times:.1f} times the tokens of {slow['label']}"
