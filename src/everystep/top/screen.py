"""The whole picture: the server's state, its lanes beside or below each other, the legend.

Owns the layout: how many lanes stand side by side, and who gets how many lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from everystep.top.lane import Lane, Room, cropped, flowed, lane_height, lane_lines
from everystep.top.looks import Looks
from everystep.top.told import Facts, Figures
from everystep.top.watch import Watch
from everystep.top.words import counted

LANE_CELLS = 60  # a lane is never narrower where another could stand beside it
GAP_CELLS = 2
FOOT_LINES = 1  # the legend
FAIR_STRIPS = 4  # lines of seats, below which a lane's other lines are cut
UNBOUNDED, ROOMY, TIGHT = Room(waiting=12), Room(waiting=4), Room(figures=1, waiting=2)


def picture(
    watch: Watch, url: str, policies: Sequence[str], width: int, height: int | None, looks: Looks
) -> list[Text]:
    """Lines for a terminal of this size; ``height`` ``None``: as many as it takes.  ``policies``: only these lanes."""
    figures = watch.figures
    assert figures is not None, "a picture before the first look"
    head = _head(watch, figures, url, width, looks)
    lanes = [
        Lane(policy, lane, list(watch.steps.get(policy, ())), figures.now_s, figures.window_s)
        for policy, lane in figures.lanes.items()
        if not policies or policy in policies
    ]
    num_columns = max(1, min(len(lanes), (width + GAP_CELLS) // (LANE_CELLS + GAP_CELLS)))
    bands = [lanes[first : first + num_columns] for first in range(0, len(lanes), num_columns)]
    cells = (width - GAP_CELLS * (num_columns - 1)) // num_columns
    room = None if height is None else height - len(head) - FOOT_LINES
    lines = [*head, *_bands(bands, cells, room, looks)]
    lines = lines if height is None else lines[: height - FOOT_LINES]
    return [*lines, flowed(looks.legend(), width, looks, style="dim")[0]]


# --- above the lanes -----------------------------------------------------------------------------
def _head(watch: Watch, figures: Figures, url: str, width: int, looks: Looks) -> list[Text]:
    title = Text.assemble(("everystep", "bold"), " ", looks.plain(url), "  ", _state(watch, figures, looks))
    lines = [cropped(title, width)]
    if watch.facts is not None:
        lines += flowed(_facts(watch.facts, looks), width, looks, style="dim")
    return [*lines, *flowed(_totals(watch, figures), width, looks)]


def _state(watch: Watch, figures: Figures, looks: Looks) -> Text:
    if watch.silence:
        return Text(f"away, trying again: {looks.plain(watch.silence)}", "bold red")
    if not figures.is_ready:
        return Text(f"not ready: {looks.plain(figures.reason)}", "bold yellow")
    return Text("live", "bold green")


def _facts(facts: Facts, looks: Looks) -> list[str]:
    parts = [looks.plain(facts.model), looks.plain(f"{facts.runner} {facts.precision}")]
    if facts.num_threads:  # a server of vLLM's elsewhere keeps these to itself
        parts += [counted(facts.num_threads, "thread"), f"{counted(facts.num_blocks, 'block')} of {facts.block_size}"]
    return [*parts, f"context {facts.max_model_len:,}"]


def _totals(watch: Watch, figures: Figures) -> list[str]:
    used, total = figures.blocks_used, figures.blocks_total
    parts = [f"KV cache {used / total:.0%}, {used:,} of {total:,} blocks"] if total else []
    parts.append(f"prefix hits {figures.totals.prefix_cache_hit_tokens:,} tokens")
    parts.append(f"preemptions {figures.totals.preemptions:,}")
    if count := watch.num_restarts:
        parts.append(f"the worker was replaced {'once' if count == 1 else f'{count:,} times'}")
    if watch.num_servers > 1:
        parts.append("the server began anew")
    return parts


# --- lanes ---------------------------------------------------------------------------------------
def _bands(bands: Sequence[Sequence[Lane]], cells: int, num_lines: int | None, looks: Looks) -> list[Text]:
    """Lanes that stand beside each other share their lines."""
    room, gap = UNBOUNDED, 1
    most: Sequence[int | None] = [None] * len(bands)
    if num_lines is not None:
        room, gap = ROOMY, 1
        most, is_enough = _strips_each(bands, cells, room, num_lines - gap * len(bands), looks)
        if not is_enough:
            room, gap = TIGHT, 0
            most, _ = _strips_each(bands, cells, room, num_lines, looks)
    lines: list[Text] = []
    for band, strips in zip(bands, most, strict=True):
        blocks = [lane_lines(lane, cells, replace(room, strips=strips), looks) for lane in band]
        lines += [Text()] * gap + _beside(blocks, cells)
    return lines


def _strips_each(
    bands: Sequence[Sequence[Lane]], cells: int, room: Room, num_lines: int, looks: Looks
) -> tuple[list[int], bool]:
    """How many lines of seats each band may have, and whether that is a fair sight.

    What the rest leaves is shared, a line at a time to whoever has the fewest and lacks some.
    """
    bare = _heights(bands, cells, replace(room, strips=0), looks)
    lacks = [high - low for low, high in zip(bare, _heights(bands, cells, room, looks), strict=True)]
    given = [0] * len(bands)
    for _ in range(num_lines - sum(bare)):
        lacking = [at for at in range(len(bands)) if given[at] < lacks[at]]
        if not lacking:
            break
        given[min(lacking, key=given.__getitem__)] += 1
    return given, all(got >= min(lack, FAIR_STRIPS) for got, lack in zip(given, lacks, strict=True))


def _heights(bands: Sequence[Sequence[Lane]], cells: int, room: Room, looks: Looks) -> list[int]:
    return [max(lane_height(lane, cells, room, looks) for lane in band) for band in bands]


def _beside(blocks: Sequence[list[Text]], cells: int) -> list[Text]:
    lines = []
    for at in range(max(map(len, blocks))):
        line = Text()
        for block in blocks:
            text = block[at] if at < len(block) else Text()
            line.append_text(text)
            line.append(" " * (cells - text.cell_len + GAP_CELLS))
        line.rstrip()
        lines.append(line)
    return lines
