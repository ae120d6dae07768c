"""Waiting against rate: TTFT and TPOT, the median and the 99th percentile.

Owns the picture of a queue that tips over.  Reads open loads alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from everystep.bench.figures.loads import Name, names_of, open_runs, runs_of, small_print
from everystep.bench.figures.look import (
    INK,
    End,
    Result,
    Run,
    Stroke,
    framed,
    label_ends,
    label_room_in,
    log_seconds,
    strokes,
)
from everystep.bench.tables import figure as digits
from everystep.bench.tables import seconds

PANELS = {"ttft_s": "TTFT, seconds", "tpot_s": "TPOT, seconds"}
SHARES = {"p50": "-", "p99": "--"}


def latency_figure(result: Result) -> Figure | None:
    """``None`` where no open load was measured."""
    runs = open_runs(result)
    if not runs:
        return None
    room_in = label_room_in([f"{run['label']} p99  0.000" for run in runs])
    figure = framed(7.4, _title(runs), small_print(result, *_how_marked(runs)), right_in=room_in)
    panels = figure.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.09})
    looks = strokes(names_of(runs))
    rates = [float(run["rate"]) for run in runs]
    for axes, (name, words) in zip(panels, PANELS.items(), strict=True):
        axes.set_ylabel(words)
        axes.set_xlim(0, 1.06 * max(rates))
        ends = [end for contender, look in looks.items() for end in _lines(axes, runs, contender, look, name)]
        log_seconds(axes)
        label_ends(axes, ends)
    panels[-1].set_xlabel("requests sent per second")
    return figure


def is_saturated(run: Run) -> bool:
    """Whether the sweep judged that the contender didn't keep up with this rate."""
    return bool(run.get("is_saturated"))


def _lines(axes: Axes, runs: Sequence[Run], name: Name, look: Stroke, latency: str) -> list[End]:
    mine, ends = runs_of(runs, name), []
    rates = [float(run["rate"]) for run in mine]
    for share, dashes in SHARES.items():
        values = [math.nan if run[latency][share] is None else float(run[latency][share]) for run in mine]
        fill = look.colour if share == "p50" else "white"
        axes.plot(rates, values, color=look.colour, marker=look.marker, mfc=fill, linestyle=dashes, ms=6, lw=1.5)
        over = [(r, v) for r, v, run in zip(rates, values, mine, strict=True) if is_saturated(run)]
        if over:
            axes.plot(*zip(*over, strict=True), color=INK, marker="o", mfc="none", ms=12, lw=0, mew=1.0)
        known = [(r, v) for r, v in zip(rates, values, strict=True) if not math.isnan(v)]
        if known:
            ends.append(End(*known[-1], f"{mine[0]['label']} {share}  {digits(known[-1][1])}", look.colour))
    return ends


def _how_marked(runs: Sequence[Run]) -> list[str]:
    words = ["full marks and lines: p50; hollow and dashed: p99"]
    return words + (["ringed: saturated"] if any(is_saturated(run) for run in runs) else [])


def _title(runs: Sequence[Run]) -> str:
    """The highest rate that each kept up with, or the last rate's waits where nobody failed."""
    if not any(is_saturated(run) for run in runs):
        rate = runs[-1]["rate"]
        waits = [f"{run['label']}: {seconds(run['ttft_s']['p99'])} s" for run in runs if run["rate"] == rate]
        return f"TTFT p99 at {rate:g} requests a second: {', '.join(waits)}"
    kept = []
    for name in names_of(runs):
        mine = runs_of(runs, name)
        good = [run["rate"] for run in mine if not is_saturated(run)]
        kept.append(f"{mine[0]['label']}: {max(good):g}/s" if good else f"{mine[0]['label']}: none")
    return f"Highest request rate that each kept up with: {', '.join(kept)}"
