"""One lane as lines of text: its figures, a strip for each seat, and who waits and why.

Owns what is left out where there is no room.  Ignorant of where on the screen it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.text import Span, Text

from everystep.top.looks import Looks, short_name
from everystep.top.told import LaneFigures, Step, Waiting
from everystep.top.words import cause, counted, duration, quantiles, shares

FEW_SEATS = 8  # a lane of so many shows the empty ones too
IDLE_S = 2.0  # longer without a step is told
NAME_CELLS = 8


@dataclass(frozen=True, slots=True)
class Lane:
    """What there is to show of a lane."""

    policy: str
    figures: LaneFigures
    steps: Sequence[Step]  # oldest first
    now_s: float
    window_s: int

    @property
    def last(self) -> Step | None:
        return self.steps[-1] if self.steps else None

    def seats_to_show(self, num_cells: int) -> list[int]:
        """All seats of a small lane; of a large one, those that were taken in the last ``num_cells`` steps."""
        taken = {row.seat for step in self.steps[-num_cells:] for row in step.rows}
        num_seats = self.figures.seats or 0
        return sorted(taken | set(range(num_seats if num_seats <= FEW_SEATS else 0)))

    def waiting(self) -> Sequence[Waiting]:
        """Who waited at the last step, unless nobody waits any more: who left in between, no step tells."""
        return self.last.waiting if self.last is not None and self.figures.num_waiting else ()


@dataclass(frozen=True, slots=True)
class Room:
    """Lines that each part of a lane may take; ``None``: as many as it takes."""

    strips: int | None = None
    figures: int | None = None
    waiting: int | None = None


def lane_lines(lane: Lane, width: int, room: Room, looks: Looks) -> list[Text]:
    """The lane, no line wider than ``width``."""
    above, below = _around(lane, width, room, looks)
    return [*above, *_strips(lane, width, _share(lane, width, room.strips), looks), *below]


def lane_height(lane: Lane, width: int, room: Room, looks: Looks) -> int:
    """How many lines that would be."""
    above, below = _around(lane, width, room, looks)
    return len(above) + _share(lane, width, room.strips).num_lines + len(below)


def _around(lane: Lane, width: int, room: Room, looks: Looks) -> tuple[list[Text], list[Text]]:
    """What stands above the seats and below them."""
    figures = flowed(_figures(lane), width, looks, style="dim")[: room.figures]
    return [_title(lane, width, looks), *figures], _line(lane, width, room.waiting, looks)


def flowed(parts: Iterable[str], width: int, looks: Looks, style: str = "") -> list[Text]:
    """As many parts to a line as fit."""
    lines: list[str] = []
    for part in parts:
        longer = f"{lines[-1]}{looks.joint}{part}" if lines else ""
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return [cropped(Text(line, style), width) for line in lines]


def cropped(text: Text, width: int) -> Text:
    """At most ``width`` cells of it."""
    text.truncate(width, overflow="crop")
    return text


def _title(lane: Lane, width: int, looks: Looks) -> Text:
    figures = lane.figures
    parts = [f"{figures.num_running} running", f"{figures.num_waiting} waiting"]
    if figures.state not in (None, "ready"):
        parts.append(looks.plain(figures.state or ""))
    parts += [f"{figures.tokens_per_s:,.1f} tokens/s", f"{figures.requests_per_s:,.2f} requests/s"]
    if lane.last is not None and lane.now_s - lane.last.end_s > IDLE_S:
        parts.append(f"no step for {duration(lane.now_s - lane.last.end_s)}")
    name = looks.plain(lane.policy)
    rest = flowed(parts, max(1, width - cell_len(name) - 2), looks)[0]
    return cropped(Text.assemble((name, "bold"), "  ", rest), width)


def _figures(lane: Lane) -> list[str]:
    figures = lane.figures
    named = {"TTFT": figures.ttft_s, "ITL": figures.itl_s, "step": figures.step_s}
    parts = [quantiles(name, values) for name, values in named.items() if values is not None]
    if words := shares(figures.seat_steps):
        parts.append(words)
    return parts or [f"nothing in the last {lane.window_s} s"]


# --- seats ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Share:
    """Which seats of a lane get a strip, and how many don't."""

    seats: list[int]
    num_more: int
    num_more_taken: int
    tells_more: bool

    @property
    def num_lines(self) -> int:
        return len(self.seats) + self.tells_more


def _share(lane: Lane, width: int, max_strips: int | None) -> _Share:
    if lane.figures.seats is None and not lane.steps:
        return _Share([], 0, 0, tells_more=False)  # an engine that tells no steps, or none there yet
    seats = lane.seats_to_show(_num_cells(lane, width))
    num_shown = len(seats) if max_strips is None or len(seats) <= max_strips else max(0, max_strips - 1)
    num_more = max(lane.figures.seats or 0, len(seats)) - num_shown
    tells_more = num_more > 0 and (max_strips is None or num_shown < max_strips)
    return _Share(seats[:num_shown], num_more, len(seats) - num_shown, tells_more)


def _num_digits(lane: Lane) -> int:
    return len(str(max(lane.figures.seats or 1, 1) - 1))


def _num_cells(lane: Lane, width: int) -> int:
    return max(1, width - _num_digits(lane) - 1)


def _strips(lane: Lane, width: int, share: _Share, looks: Looks) -> list[Text]:
    num_cells, digits = _num_cells(lane, width), _num_digits(lane)
    table = _cells(lane.steps[-num_cells:], share.seats, num_cells, looks)
    strips = [_strip(f"{seat:>{digits}} ", cells) for seat, cells in zip(share.seats, table, strict=True)]
    if share.tells_more:
        taken = f"{share.num_more_taken} of them taken of late" if share.num_more_taken else "empty"
        words = f"{looks.rest} {counted(share.num_more, 'more seat')}, {taken}"
        strips.append(cropped(Text(words, "dim"), width))
    return strips


def _cells(steps: Sequence[Step], seats: Sequence[int], num_cells: int, looks: Looks) -> list[list[tuple[str, str]]]:
    """``[seats][cells]``: character and style; the newest step is the last cell."""
    blank = [(" ", "")] * (num_cells - len(steps)) + [(looks.empty, "dim")] * len(steps)
    table = {seat: list(blank) for seat in seats}
    for place, step in enumerate(steps, num_cells - len(steps)):
        for row in step.rows:
            if row.seat in table:
                table[row.seat][place] = looks.cell(row.sequence_id, row.phase)
    return [table[seat] for seat in seats]


def _strip(gutter: str, cells: Iterable[tuple[str, str]]) -> Text:
    words, spans, at = [gutter], [Span(0, len(gutter), "dim")], len(gutter)
    for (character, style), run in groupby(cells):
        length = len(list(run))
        words.append(character * length)
        if style:
            spans.append(Span(at, at + length, style))
        at += length
    return Text("".join(words), spans=spans)


# --- the line ------------------------------------------------------------------------------------
def _line(lane: Lane, width: int, max_waiting: int | None, looks: Looks) -> list[Text]:
    waiting = lane.waiting()
    if not waiting:
        return [cropped(Text("waiting for the lane's next step"), width)] if lane.figures.num_waiting else []
    assert lane.last is not None
    num_shown = len(waiting) if max_waiting is None or len(waiting) <= max_waiting else max_waiting - 1
    since_s = max(0.0, lane.now_s - lane.last.start_s)
    lines = [
        Text(
            f"{looks.plain(short_name(one.sequence_id)):<{NAME_CELLS}} {duration(one.waited_s + since_s):>7}  "
            + looks.plain(cause(one, lane.last, lane.figures.seats or 0))
        )
        for one in waiting[:num_shown]
    ]
    if num_more := len(waiting) - num_shown:
        lines.append(Text(f"and {num_more:,} more", "dim"))
    return [cropped(line, width) for line in lines]
