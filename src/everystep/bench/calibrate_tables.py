"""A calibration in words, and predictions beside measurements.

Owns what is shown of both.  Ignorant of how either was made.
"""

from __future__ import annotations

from everystep.analysis.calibration import Calibration
from everystep.analysis.cost import FEATURES
from everystep.bench.results import Result, Run
from everystep.bench.tables import NONE, Table, figure, seconds

MILLI, MICRO = 1e3, 1e6


def cost_table(calibration: Calibration) -> Table:
    """What a step costs, part by part."""
    rows = [
        (name, _price(calibration.coefficients[name]), f"for {what}")
        for name, what in FEATURES.items()
        if calibration.coefficients[name] > 0
    ]
    title = f"A step of {calibration.model}, {calibration.runner}, {calibration.precision}, costs the sum of"
    return Table(title, ("part", "price", ""), tuple(rows))


def fit_lines(calibration: Calibration) -> list[str]:
    """How well that explains the steps it was made of, and what lies outside of steps."""
    fit = calibration.fit
    low, high = fit.relative_residual["p5"], fit.relative_residual["p95"]
    return [
        f"fitted to {fit.num_steps - fit.num_outliers} steps of {fit.num_steps} ({fit.num_outliers} stalled), "
        f"R² {fit.r_squared:.4f}, nine in ten predicted within {low:+.0%} to {high:+.0%}",
        f"outside of steps: {calibration.submit_s * MILLI:.1f} ms from the client to the line, "
        f"{calibration.deliver_s * MILLI:.1f} ms from a step to the client",
    ]


def _price(price_s: float) -> str:
    milliseconds = price_s * MILLI
    return f"{figure(milliseconds)} ms" if milliseconds >= 0.1 else f"{figure(price_s * MICRO)} µs"


def prediction_table(result: Result) -> Table | None:
    """Each run's wall time as measured and as simulated, and what the round law says of a static lane."""
    runs = [run for run in result["runs"] if run["predicted_wall_s"] is not None]
    if not runs:
        return None
    has_law = any(run.get("round_law_s") for run in runs)
    head = ("contender", "load", "measured", "predicted", "off by", *(["round law"] if has_law else []))
    rows = [_row(run, has_law) for run in runs]
    return Table("Wall time in seconds, measured and predicted from the calibration", head, tuple(rows))


def _row(run: Run, has_law: bool) -> tuple[str, ...]:
    load = f"N = {run['n']}" if run["rate"] is None else f"{run['rate']:.3g}/s"
    off = run["predicted_wall_s"] / run["wall_s"] - 1
    law = (seconds(run.get("round_law_s")) or NONE,) if has_law else ()
    return (run["label"], load, figure(run["wall_s"]), figure(run["predicted_wall_s"]), f"{off:+.1%}", *law)
