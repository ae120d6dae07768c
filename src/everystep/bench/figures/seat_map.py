"""Step logs as stretches: who sat in which seat from when to when, doing what; and how long the line was.

Owns the arithmetic between ``/steps`` entries and rectangles.  Ignorant of how they are drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

Step = Mapping[str, Any]
MOST_STEPS = 600  # of a lane: more would be narrower than a pixel
LONGEST_JOIN = 0.25  # of a step: a longer gap before the next step is shown as one


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring steps in which one sequence did one thing in one seat."""

    seat: int
    sequence_id: str
    request_id: str
    phase: str  # prefill | decode | held
    start_s: float
    end_s: float
    num_steps: int = 1


@dataclass(frozen=True, slots=True)
class LaneMap:
    """One lane's log.  Times are seconds from ``origin_s`` on the server's clock."""

    stretches: tuple[Stretch, ...]
    starts_s: tuple[float, ...]  # of every step
    ends_s: tuple[float, ...]
    waiting: tuple[int, ...]  # at every step's start
    num_seats: int  # the highest seat that was taken, counted from one
    end_s: float
    seat_steps: Mapping[str, int]  # working and held

    @property
    def held_share(self) -> float:
        """Of seats that somebody had: how much of it nothing was computed for."""
        taken = sum(self.seat_steps.values())
        return self.seat_steps.get("held", 0) / taken if taken else 0.0


def origins_s(steps: Mapping[str, Sequence[Step]]) -> dict[str, float]:
    """Each lane's zero: the common first step where lanes worked at the same time, else its own first step."""
    spans = sorted((log[0]["start_s"], log[-1]["end_s"], name) for name, log in steps.items() if log)
    overlap = any(later[0] < earlier[1] for earlier, later in pairwise(spans))
    return {name: spans[0][0] if overlap else start_s for start_s, _, name in spans}


def shared_window_s(steps: Mapping[str, Sequence[Step]], origins: Mapping[str, float]) -> float:
    """Seconds from the origins to draw: as many as keep every lane within ``MOST_STEPS``; infinite where all do."""
    ends_s = [log[MOST_STEPS - 1]["end_s"] - origins[lane] for lane, log in steps.items() if len(log) > MOST_STEPS]
    return min(ends_s, default=math.inf)


def cut(steps: Sequence[Step], end_s: float) -> Sequence[Step]:
    """The steps that ended by ``end_s``, and the first in any case."""
    return [step for place, step in enumerate(steps) if place == 0 or step["end_s"] <= end_s]


def lane_map(steps: Sequence[Step], origin_s: float) -> LaneMap:
    """``steps`` are one lane's, oldest first, at least one."""
    open_stretches: dict[int, Stretch] = {}  # by seat
    done: list[Stretch] = []
    counts: Counter[str] = Counter()
    for step in steps:
        start_s, end_s = step["start_s"] - origin_s, step["end_s"] - origin_s
        for row in step["rows"]:
            counts["held" if row["phase"] == "held" else "working"] += 1
            new = Stretch(row["seat"], row["sequence_id"], row["request_id"], row["phase"], start_s, end_s)
            old = open_stretches.get(new.seat)
            if old is not None and _joins(old, new):
                new = replace(old, end_s=end_s, num_steps=old.num_steps + 1)
            elif old is not None:
                done.append(old)
            open_stretches[new.seat] = new
    stretches = sorted([*done, *open_stretches.values()], key=lambda one: (one.start_s, one.seat))
    return LaneMap(
        stretches=tuple(stretches),
        starts_s=tuple(step["start_s"] - origin_s for step in steps),
        ends_s=tuple(step["end_s"] - origin_s for step in steps),
        waiting=tuple(len(step["waiting"]) for step in steps),
        num_seats=1 + max((one.seat for one in stretches), default=0),
        end_s=steps[-1]["end_s"] - origin_s,
        seat_steps=counts,
    )


def _joins(old: Stretch, new: Stretch) -> bool:
    is_same = (old.sequence_id, old.phase) == (new.sequence_id, new.phase)
    return is_same and new.start_s - old.end_s <= LONGEST_JOIN * (new.end_s - new.start_s)


def colour_keys(maps: Sequence[LaneMap]) -> dict[str, str]:
    """By sequence: what its colour stands for.  Its request; where one request brought everything, itself."""
    stretches = [one for lane in maps for one in lane.stretches]
    are_many = any(len({one.request_id for one in lane.stretches}) > 1 for lane in maps)
    return {one.sequence_id: one.request_id if are_many else one.sequence_id for one in stretches}
