"""How every figure looks: sizes, fonts, a contender's stroke, labels at the ends of lines, small print, files.

Owns colours, markers and the placing of words.  Ignorant of what is shown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

Result = dict[str, Any]
Run = dict[str, Any]
Dashes = str | tuple[float, tuple[float, ...]]

WIDTH_IN, DPI = 8.0, 120  # 960 pixels
INK, FAINT = "#222222", "#666666"
TITLE_PT, LABEL_PT, SMALL_PT = 12.0, 9.5, 7.5
TITLE_CHARS, SMALL_CHARS = 78, 140  # what a line of WIDTH_IN holds
LETTER_IN = 0.083  # of a label, on average
STYLE = {
    "svg.hashsalt": "everystep",  # the same data gives the same file
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "font.size": LABEL_PT,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.9,
}


@dataclass(frozen=True, slots=True)
class Stroke:
    """A contender's line.  Marker and dashes tell it apart in black and white; colours are Okabe and Ito's."""

    colour: str
    marker: str
    dashes: Dashes = "-"


STROKES = {
    ("everystep", "static"): Stroke("#0072B2", "o"),
    ("everystep", "per_token"): Stroke("#D55E00", "s", (0, (4, 2))),
    ("everystep", "continuous"): Stroke("#009E73", "^"),
    ("hf-generate", "static"): Stroke("#000000", "D", "-."),
    ("vllm", "vllm"): Stroke("#CC79A7", "v", (0, (6, 2))),
    ("openvino-genai", "continuous"): Stroke("#56B4E9", "P", ":"),
}
OTHERS = (Stroke("#E69F00", "X", "--"), Stroke("#7F7F7F", "*", ":"), Stroke("#882255", "<"), Stroke("#44AA99", ">"))


def strokes(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Stroke]:
    """By (engine, policy); whoever has none of its own takes the next of the others."""
    unknown = [name for name in names if name not in STROKES]
    spare = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(unknown)}
    return {name: STROKES.get(name) or spare[name] for name in names}


def label_room_in(words: Sequence[str]) -> float:
    """Inches to the right of the axes that the longest of these labels takes."""
    return 0.35 + LETTER_IN * max(map(len, words))


def framed(height_in: float, title: str, small_print: Sequence[str], *, right_in: float) -> Figure:
    """An empty figure with its title above and its small print below; ``right_in`` is kept for labels."""
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI)
    FigureCanvasAgg(figure)
    lines = textwrap.wrap(title, TITLE_CHARS)
    small = [part for line in small_print for part in textwrap.wrap(line, SMALL_CHARS)]
    figure.text(0.015, 1 - 0.12 / height_in, "\n".join(lines), size=TITLE_PT, va="top", weight="bold")
    figure.text(0.015, 0.1 / height_in, "\n".join(small), size=SMALL_PT, color=FAINT, va="bottom")
    top_in, bottom_in = 0.3 + 0.21 * len(lines), 0.62 + 0.13 * len(small)
    figure.subplots_adjust(
        left=0.85 / WIDTH_IN,
        right=1 - right_in / WIDTH_IN,
        top=1 - top_in / height_in,
        bottom=bottom_in / height_in,
    )
    return figure


def log_seconds(axes: Axes) -> None:
    """A logarithmic y axis round what is plotted already; its ticks are plain numbers, more where it spans little."""
    axes.set_yscale("log")
    axes.margins(y=0.08)
    axes.autoscale_view(scalex=False)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0) if high > 10 * low else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.6f}".rstrip("0").rstrip(".")))
    axes.yaxis.set_minor_locator(NullLocator())


def log_sizes(axes: Axes, ns: Sequence[int]) -> None:
    """A logarithmic x axis, base 2, with ticks at the measured N alone."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ns, labels=[str(n) for n in ns])
    axes.set_xlim(ns[0] / 1.15, ns[-1] * 1.15)


@dataclass(frozen=True, slots=True)
class End:
    """Where a line ends, in data coordinates, and what it is."""

    x: float
    y: float
    words: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[End], gap_pt: float = 11.5) -> None:
    """Each line's name to the right of the axes at its end's height, moved up or down where two would touch.

    A line that ends earlier than others has its name beside its end: a leader across the figure would look like data.
    To be called when scales and limits are final: the places follow from them.
    """
    points_per_pixel = 72 / axes.figure.dpi
    furthest = max(end.x for end in ends)
    for end in ends:
        if end.x < furthest:
            axes.annotate(end.words, (end.x, end.y), xytext=(9, 0), textcoords="offset points", color=end.colour,
                          va="center", bbox={"facecolor": "white", "lw": 0, "pad": 0.5, "alpha": 0.8})  # fmt: skip
    ends = [end for end in ends if end.x == furthest]
    heights = [float(axes.transData.transform((end.x, end.y))[1]) * points_per_pixel for end in ends]
    right_pt = float(axes.transAxes.transform((1.0, 0.0))[0]) * points_per_pixel
    for end, height, placed in zip(ends, heights, spread(heights, gap_pt), strict=True):
        across = right_pt - float(axes.transData.transform((end.x, end.y))[0]) * points_per_pixel + 6
        axes.annotate(
            end.words,
            (end.x, end.y),
            xytext=(across, placed - height),
            textcoords="offset points",
            color=end.colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.colour, "lw": 0.5, "shrinkA": 1, "shrinkB": 4},
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The nearest heights in the same order that lie at least ``gap`` apart (pooled neighbours share their middle)."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    pools: list[list[float]] = []  # of each pool: its members' wishes, lowest first
    for place in order:
        pools.append([heights[place]])
        while len(pools) > 1 and _low(pools[-1], gap) < _low(pools[-2], gap) + gap * len(pools[-2]):
            pools[-2:] = [pools[-2] + pools[-1]]
    placed = [_low(pool, gap) + gap * place for pool in pools for place in range(len(pool))]
    return [placed[order.index(place)] for place in range(len(heights))]


def _low(pool: Sequence[float], gap: float) -> float:
    """The height of a pool's lowest member: its members, ``gap`` apart, round the mean of their wishes."""
    return sum(pool) / len(pool) - gap * (len(pool) - 1) / 2


def save(figure: Figure, stem: Path) -> list[Path]:
    """``stem``.svg and ``stem``.png.  No date within, so that the same data gives the same bytes."""
    files = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=DPI)
    return files
