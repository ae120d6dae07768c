"""The round law beside the measurement, and what a cost model predicted beside what was measured.

Owns ceil(N/B) × T: the write-up's law of static batching.  Reads closed loads alone for the law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from everystep.bench.figures.loads import closed_load, closed_runs, open_runs, runs_of, small_print, static_seats
from everystep.bench.figures.look import (
    FAINT,
    STROKES,
    End,
    Result,
    Run,
    framed,
    label_ends,
    log_seconds,
    log_sizes,
    strokes,
)
from everystep.bench.tables import figure as digits

OWN_STATIC = ("everystep", "static")
BAND = 10.0  # percent: the goal of prediction


def round_law_s(n: int, seats: int, round_s: float) -> float:
    """Seconds for ``n`` prompts in rounds of ``seats``, each of ``round_s``."""
    return math.ceil(n / seats) * round_s


def round_law_figure(result: Result) -> Figure | None:
    """Measured wall time of our static lane, and the law with T of the smallest round and of a full one.

    ``None`` where static wasn't measured at a single round and at more than one.
    """
    seats = static_seats(result)
    runs = sorted(runs_of(closed_runs(result), OWN_STATIC), key=lambda run: int(run["n"]))
    rounds = [run for run in runs if run["n"] <= seats]
    if not rounds or runs[-1]["n"] <= seats:
        return None
    ns = [int(run["n"]) for run in runs]
    small = small_print(result, closed_load(result))
    figure = framed(4.9, _law_title(runs[-1], rounds[-1], seats), small, right_in=2.35)
    axes = figure.add_subplot()
    axes.set_xlabel("N, prompts sent at once")
    axes.set_ylabel("seconds until all N answers are there")
    log_sizes(axes, ns)
    ends = [_measured(axes, runs)]
    for run in {int(run["n"]): run for run in (rounds[0], rounds[-1])}.values():
        ends.append(_law(axes, ns, seats, run, is_full=run["n"] == seats))
    ends += _predicted(axes, runs)
    log_seconds(axes)
    label_ends(axes, ends)
    return figure


def _law_title(last: Run, a_round: Run, seats: int) -> str:
    law_s = round_law_s(int(last["n"]), seats, float(a_round["wall_s"]))
    words = f"Static at N = {last['n']}: the round law says {digits(law_s)} s, measured {digits(last['wall_s'])} s"
    return f"{words} (T = {digits(a_round['wall_s'])} s, a round of {a_round['n']})"


def _measured(axes: Axes, runs: Sequence[Run]) -> End:
    look = STROKES[OWN_STATIC]
    ns, walls_s = [int(run["n"]) for run in runs], [float(run["wall_s"]) for run in runs]
    axes.plot(ns, walls_s, color=look.colour, marker=look.marker, lw=0, ms=7, zorder=3)
    return End(ns[-1], walls_s[-1], f"measured  {digits(walls_s[-1])} s", look.colour)


def _law(axes: Axes, ns: Sequence[int], seats: int, run: Run, *, is_full: bool) -> End:
    """Stairs: a law that jumps wherever another round begins."""
    every_n = range(ns[0], ns[-1] + 1)
    law_s = [round_law_s(n, seats, float(run["wall_s"])) for n in every_n]
    dashes = "-" if is_full else "--"
    axes.plot(every_n, law_s, color=FAINT, linestyle=dashes, lw=1.1, drawstyle="steps-pre")
    prompts = "1 prompt" if run["n"] == 1 else f"{run['n']} prompts"
    words = f"⌈N/{seats}⌉ × {digits(run['wall_s'])} s  (T of {prompts})"
    return End(ns[-1], law_s[-1], words, FAINT)


def _predicted(axes: Axes, runs: Sequence[Run]) -> list[End]:
    pairs = [(int(run["n"]), float(run["predicted_wall_s"])) for run in runs if run["predicted_wall_s"] is not None]
    if not pairs:
        return []
    colour = "#D55E00"
    axes.plot(*zip(*pairs, strict=True), color=colour, marker="x", lw=0, ms=8, mew=1.6, zorder=4)
    return [End(*pairs[-1], f"cost model  {digits(pairs[-1][1])} s", colour)]


def prediction_figure(result: Result) -> Figure | None:
    """A row per run that has a prediction: by how much it missed.  ``None`` where there is none."""
    runs = [run for run in (*closed_runs(result), *open_runs(result)) if run["predicted_wall_s"] is not None]
    if not runs:
        return None
    runs.sort(key=lambda run: (str(run["label"]), run["rate"] is not None, _load(run)))
    misses = [100 * (run["predicted_wall_s"] / run["wall_s"] - 1) for run in runs]
    figure = framed(1.9 + 0.24 * len(runs), _miss_title(runs, misses), small_print(result), right_in=2.0)
    figure.subplots_adjust(left=1.9 / figure.get_figwidth())
    axes = figure.add_subplot()
    axes.axvspan(-BAND, BAND, color="#EEEEEE", zorder=0)
    axes.axvline(0, color=FAINT, lw=0.8)
    looks = strokes([(str(run["engine"]), str(run["policy"])) for run in runs])
    for row, (run, miss) in enumerate(zip(runs, misses, strict=True)):
        look = looks[run["engine"], run["policy"]]
        axes.plot([0, miss], [row, row], color=look.colour, lw=1.0)
        axes.plot([miss], [row], color=look.colour, marker=look.marker, ms=6.5)
        words = f"{digits(run['predicted_wall_s'])} s, measured {digits(run['wall_s'])} s"
        axes.annotate(words, (1, row), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                      va="center", color=FAINT)  # fmt: skip
    axes.set_yticks(range(len(runs)), labels=[f"{run['label']}, {_words(run)}" for run in runs])
    axes.set_ylim(len(runs) - 0.5, -0.5)
    reach = max(BAND * 1.5, *(1.1 * abs(miss) for miss in misses))
    axes.set_xlim(-reach, reach)
    axes.set_xlabel(f"predicted wall time against measured, in percent (grey: within {BAND:.0f} %)")
    return figure


def _miss_title(runs: Sequence[Run], misses: Sequence[float]) -> str:
    num_good = sum(abs(miss) <= BAND for miss in misses)
    worst = max(range(len(runs)), key=lambda row: abs(misses[row]))
    return (
        f"{num_good} of {len(runs)} predictions within {BAND:.0f} %; the worst misses by {abs(misses[worst]):.0f} % "
        f"({runs[worst]['label']}, {_words(runs[worst])})"
    )


def _load(run: Run) -> float:
    return float(run["n"] if run["rate"] is None else run["rate"])


def _words(run: Run) -> str:
    return f"N = {run['n']}" if run["rate"] is None else f"{run['rate']:g} a second"
