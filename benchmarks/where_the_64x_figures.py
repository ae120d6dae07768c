"""The figures of ``docs/where-the-64x-comes-from.md``: the chain of factors, and seats over time.

Owns the chain's picture; the seats are drawn by the benchmark's own figures.  Needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from everystep.bench.figures.loads import small_print
from everystep.bench.figures.look import FAINT, STYLE, framed, save
from everystep.bench.figures.seats import seats_figure

BAR, WHOLE = "#0072B2", "#555555"


@dataclass(frozen=True)
class Part:
    """A link of the chain as it is shown."""

    words: str
    factor: float


def chain_figure(parts: Sequence[Part], measured: float, result: dict[str, Any]) -> Figure:
    """A bar per part, each beginning where the one above ends: lengths on a logarithmic axis multiply."""
    product = 1.0
    title = f"Parts that multiply to {_product(parts):.1f}; the whole was measured as {measured:.1f}"
    figure = framed(1.9 + 0.36 * (len(parts) + 2), title, small_print(result), right_in=0.9)
    figure.subplots_adjust(left=3.3 / figure.get_figwidth())
    axes = figure.add_subplot()
    axes.grid(visible=False, axis="y")
    for row, part in enumerate(parts):
        axes.barh(row, product * part.factor - product, left=product, height=0.62, color=BAR)
        axes.plot([product * part.factor] * 2, [row, row + 1], color=FAINT, lw=0.7)
        _name(axes, max(product, product * part.factor), row, f"× {part.factor:.2f}")
        product *= part.factor
    for row, (whole, is_measured) in enumerate([(product, False), (measured, True)], len(parts)):
        axes.barh(
            row, whole - 1, left=1, height=0.62, color=WHOLE, hatch="" if is_measured else "///", edgecolor="white"
        )
        _name(axes, whole, row, f"{whole:.1f}")
    names = [*(part.words for part in parts), "product of the parts", "measured directly"]
    axes.set_yticks(range(len(names)), labels=names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(0.9, 1.25 * max(product, measured))
    axes.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.set_xlabel("times as fast as the hand-written path")
    return figure


def _name(axes: Any, x: float, row: int, words: str) -> None:
    axes.annotate(words, (x, row), xytext=(4, 0), textcoords="offset points", va="center")


def _product(parts: Sequence[Part]) -> float:
    product = 1.0
    for part in parts:
        product *= part.factor
    return product


def draw(
    parts: Sequence[Part], measured: float | None, steps: dict[str, Any], result: dict[str, Any], out: Path
) -> None:
    """``64x-chain`` where everything was measured, ``64x-seats`` where there are step logs."""
    out.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):  # type: ignore[arg-type]
        if measured is not None:
            save(chain_figure(parts, measured, result), out / "64x-chain")
        if (seats := seats_figure(result, steps)) is not None:
            save(seats, out / "64x-seats")
