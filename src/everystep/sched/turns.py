"""Whose turn it is: lanes that share one runner are served in turn, a step each.

Owns the order of turns.  The engine and the simulator drive the same object.  Ignorant of runners and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from everystep.types import Policy, StepPlan


class Turns:
    """Lanes by name, and the order in which they are asked."""

    def __init__(self, lanes: Mapping[str, Policy]) -> None:
        self.lanes = dict(lanes)
        self._order = list(self.lanes)

    def has_work(self) -> bool:
        return any(lane.has_work() for lane in self.lanes.values())

    def next_plan(
        self, now_s: float, on_empty: Callable[[Policy], None] = lambda lane: None
    ) -> tuple[Policy | None, StepPlan]:
        """The first lane in turn that can run, and its plan; that lane goes to the end of the turn.

        ``on_empty`` hears of each lane that was asked and could run nobody: its plan may have taken seats away.
        """
        for name in list(self._order):
            lane = self.lanes[name]
            if not lane.has_work():
                continue
            plan = lane.plan(now_s)
            if plan.rows:
                self._order.remove(name)
                self._order.append(name)
                return lane, plan
            on_empty(lane)
        return None, StepPlan(policy="")

    def next_ready_s(self) -> float | None:
        """When a lane that waits for company will start by itself; ``None`` if only an arrival can change things."""
        times = [lane.ready_at_s() for lane in self.lanes.values()]
        return min((time for time in times if time is not None), default=None)
