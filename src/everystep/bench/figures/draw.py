"""All figures of one result into a folder.

Owns names and order of the files, and the line that says which had no data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from everystep.bench.figures.latency import latency_figure
from everystep.bench.figures.look import STYLE, Result, save
from everystep.bench.figures.rounds import prediction_figure, round_law_figure
from everystep.bench.figures.seat_map import Step
from everystep.bench.figures.seats import seats_figure
from everystep.bench.figures.throughput import throughput_figure

WITHOUT = {
    "throughput": "no closed load at two sizes or more",
    "round-law": "no closed load of the static lane that fits one round and one that doesn't",
    "prediction": "no run has a prediction (--calibration FILE)",
    "latency": "no open load (--rate R)",
    "seats": "no step log (--steps)",
}


def draw(
    result: Result, out: Path, step_logs: Mapping[str, Mapping[str, Sequence[Step]]], say: Callable[[str], None]
) -> list[Path]:
    """See :func:`everystep.bench.figures.draw_all`."""
    makers: dict[str, Callable[[], Figure | None]] = {
        "throughput": lambda: throughput_figure(result),
        "round-law": lambda: round_law_figure(result),
        "prediction": lambda: prediction_figure(result),
        "latency": lambda: latency_figure(result),
        **{name: partial(seats_figure, result, logs) for name, logs in step_logs.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    files, absent = [], []
    with rc_context(STYLE):  # type: ignore[arg-type]
        for name, make in makers.items():
            figure = make()
            if figure is None:
                absent.append(f"{name} ({WITHOUT.get(name, WITHOUT['seats'])})")
            else:
                files += save(figure, out / name)
    if absent:
        say(f"figures left out: {', '.join(absent)}")
    return files
