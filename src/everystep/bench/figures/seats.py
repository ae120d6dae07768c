"""Who sat where: seats over time, lane above lane, over the same seconds, and the waiting line below.

Owns colours of requests and shades of phases.  Ignorant of where the step logs come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from everystep.bench.figures.loads import small_print
from everystep.bench.figures.look import FAINT, INK, STROKES, Result, framed
from everystep.bench.figures.seat_map import (
    LaneMap,
    Step,
    Stretch,
    colour_keys,
    cut,
    lane_map,
    origins_s,
    shared_window_s,
)
from everystep.bench.tables import figure as digits

# Okabe and Ito's without yellow and black: each dark enough to be lightened, and told apart by colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#888888")
SEAT_IN, LEAST_IN, MOST_IN, WAITING_IN = 0.17, 0.75, 2.9, 0.8
HATCH = "//////"
LEAST_BORDERED_PT = 2.0  # the line before a narrower step would hide it
HAIR_PT = 0.25  # an edge of its own colour, so that the narrowest stretch is seen
NUMBER_PT = 7.5
MOST_SEAT_NAMES = 8
LANES = ("static", "per_token", "continuous")


def seats_figure(result: Result, steps: Mapping[str, Sequence[Step]]) -> Figure | None:
    """A panel per lane.  ``None`` where no lane has a step."""
    logs = {lane: steps[lane] for lane in sorted(steps, key=_place) if steps[lane]}
    if not logs:
        return None
    origins = origins_s(logs)
    window_s = shared_window_s(logs, origins)
    maps = {lane: lane_map(cut(log, origins[lane] + window_s), origins[lane]) for lane, log in logs.items()}
    has_line = any(any(each.waiting) for each in maps.values())
    heights = [min(max(SEAT_IN * each.num_seats, LEAST_IN), MOST_IN) for each in maps.values()]
    heights += [WAITING_IN] if has_line else []
    notes = small_print(
        result, "numbers, where there is room: prompts in the order in which they got a seat", *_cut_note(window_s)
    )
    figure = framed(1.75 + sum(heights) + 0.42 * len(heights), _title(maps), notes, right_in=1.35)
    _key(figure)
    grid = {"height_ratios": heights, "hspace": 0.42 * len(heights) / sum(heights)}
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw=grid)[:, 0]
    colours = request_colours(list(maps.values()))
    panels[0].set_xlim(0, max(each.end_s for each in maps.values()))
    for axes, (lane, each) in zip(panels, maps.items(), strict=False):
        draw_lane(axes, lane, each, colours)
    if has_line:
        _waiting(panels[-1], maps)
    panels[-1].set_xlabel("seconds" if len(set(origins.values())) == 1 else "seconds since the lane's first step")
    return figure


def _cut_note(window_s: float) -> list[str]:
    return [] if math.isinf(window_s) else [f"the first {digits(window_s)} s alone"]


def _place(lane: str) -> int:
    """The lanes that everybody has come first, the simplest on top."""
    return LANES.index(lane) if lane in LANES else len(LANES)


def request_colours(maps: Sequence[LaneMap]) -> dict[str, str]:
    """By sequence.  Requests take colours in the order in which they came to a seat, in every lane alike."""
    keys = colour_keys(maps)
    colours: dict[str, str] = {}
    for lane in maps:
        seen = dict.fromkeys(keys[one.sequence_id] for one in lane.stretches)
        colours |= {key: COLOURS[place % len(COLOURS)] for place, key in enumerate(seen)}
    return {sequence_id: colours[key] for sequence_id, key in keys.items()}


def draw_lane(axes: Axes, lane: str, each: LaneMap, colours: Mapping[str, str]) -> None:
    """Seat 0 on top.  A rectangle per stretch, a white line per step."""
    axes.grid(visible=False)
    numbers = {one: place for place, one in enumerate(dict.fromkeys(s.sequence_id for s in each.stretches), 1)}
    ends_s = {one.sequence_id: one.end_s for one in each.stretches}
    for one in each.stretches:
        axes.add_patch(_rectangle(one, colours[one.sequence_id]))
    for one in {one.sequence_id: one for one in reversed(each.stretches)}.values():  # of each, its first
        _number(axes, one, numbers[one.sequence_id], colours[one.sequence_id], ends_s[one.sequence_id])
    borders_s = [start_s for start_s, end_s in zip(each.starts_s, each.ends_s, strict=True)
                 if _width_pt(axes, start_s, end_s) >= LEAST_BORDERED_PT]  # fmt: skip
    _lines(axes, [((start_s, start_s), (0, each.num_seats)) for start_s in borders_s], 0.4)
    _lines(axes, [((0, each.end_s), (seat, seat)) for seat in range(1, each.num_seats)], 0.8)
    axes.set_ylim(each.num_seats, 0)
    seats = range(0, each.num_seats, -(-each.num_seats // MOST_SEAT_NAMES))
    axes.set_yticks([seat + 0.5 for seat in seats], labels=[str(seat) for seat in seats])
    axes.tick_params(left=False)
    axes.set_ylabel("seat")
    words = f"{lane}: {digits(each.end_s)} s, {len(each.starts_s)} steps"
    held = each.held_share
    axes.set_title(words + (f", {held:.0%} of taken seats held" if held else ""), loc="left", size=10)


def _lines(axes: Axes, ends: Sequence[tuple[tuple[float, float], tuple[float, float]]], width_pt: float) -> None:
    """White lines as one path: a path each would be most of the file."""
    xs = [x for across, _ in ends for x in (*across, math.nan)]
    ys = [y for _, down in ends for y in (*down, math.nan)]
    axes.plot(xs, ys, color="white", lw=width_pt)


def _number(axes: Axes, one: Stretch, number: int, colour: str, end_s: float) -> None:
    """On a patch of its own colour, since a short stretch doesn't reach behind all its digits; where there is room."""
    if _width_pt(axes, one.start_s, end_s) < NUMBER_PT * (1 + 0.7 * len(str(number))):
        return
    patch = {"facecolor": colour, "lw": 0, "pad": 1.0}
    place = (one.start_s, one.seat + 0.5)
    axes.annotate(str(number), place, xytext=(2.5, -0.5), textcoords="offset points", size=NUMBER_PT, va="center",
                  color="white", weight="bold", bbox=patch, annotation_clip=True)  # fmt: skip


def _width_pt(axes: Axes, start_s: float, end_s: float) -> float:
    left, right = (float(axes.transData.transform((x_s, 0))[0]) for x_s in (start_s, end_s))
    return (right - left) * 72 / axes.figure.dpi


def _rectangle(one: Stretch, colour: str) -> Rectangle:
    place = ((one.start_s, one.seat), one.end_s - one.start_s, 1.0)
    if one.phase == "held":
        return Rectangle(*place, facecolor="white", edgecolor=colour, hatch=HATCH, lw=0.0)
    shade = to_rgb(colour) if one.phase == "prefill" else _light(colour)
    return Rectangle(*place, facecolor=shade, edgecolor=shade, lw=HAIR_PT)


def _light(colour: str) -> tuple[float, float, float]:
    red, green, blue = (0.5 + 0.5 * part for part in to_rgb(colour))
    return red, green, blue


def _key(figure: Figure) -> None:
    handles = [
        Patch(facecolor=FAINT, label="prefill"),
        Patch(facecolor=_light(FAINT), label="decode"),
        Patch(facecolor="white", edgecolor=FAINT, hatch=HATCH, label="held: ended, nothing computed"),
        Patch(facecolor="white", edgecolor="#CCCCCC", label="empty"),
    ]
    top = figure.subplotpars.top
    figure.legend(handles=handles, ncols=4, loc="lower left", bbox_to_anchor=(0.005, top - 0.02), frameon=False)
    figure.subplots_adjust(top=top - 0.4 / figure.get_figheight())


def _waiting(axes: Axes, maps: Mapping[str, LaneMap]) -> None:
    for lane, each in maps.items():
        look = STROKES.get(("everystep", lane))
        colour, dashes = (look.colour, look.dashes) if look else (INK, "-")
        times, counts = [*each.starts_s, each.end_s], [*each.waiting, each.waiting[-1]]
        axes.plot(times, counts, drawstyle="steps-post", color=colour, linestyle=dashes, lw=1.5, label=lane)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylabel("waiting")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.2), frameon=False)  # all lines end at 0: no place for names


def _title(maps: Mapping[str, LaneMap]) -> str:
    ends = ", ".join(f"{lane} {digits(each.end_s)} s" for lane, each in maps.items())
    return f"Seats over time: {ends}" if len(maps) == 1 else f"The same prompts: {ends}"
