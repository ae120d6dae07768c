"""A server made by hand for what watches one: figures and steps as a test sets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everystep.top.told import Facts, Figures, LaneFigures, Quantiles, Row, SeatSteps, Step, StepPage, Totals, Waiting

FACTS = Facts("smollm2-135m", "openvino", "int8", 2, 32, 1000, 4096)


def lane(seats: int | None = 4, **changes: Any) -> LaneFigures:
    """A lane in which nothing happens."""
    quiet: dict[str, Any] = {
        "num_running": 0, "num_waiting": 0, "tokens_per_s": 0.0, "requests_per_s": 0.0, "steps_per_s": 0.0,
        "seat_steps": SeatSteps(0, 0, 0), "seats": seats,
    }  # fmt: skip
    return LaneFigures(**quiet | changes)


def figures(lanes: dict[str, LaneFigures] | None = None, **changes: Any) -> Figures:
    """Of a server that is well, at 10 s."""
    well: dict[str, Any] = {
        "server_id": "one", "now_s": 10.0, "window_s": 10, "is_ready": True, "reason": "", "last_step": -1,
        "num_worker_restarts": 0, "blocks_used": 10, "blocks_total": 1000, "totals": Totals(5, 1),
        "lanes": lanes or {"static": lane()},
    }  # fmt: skip
    return Figures(**well | changes)


def step(
    number: int, *seats: str, policy: str = "static", start_s: float | None = None, waiting: Sequence[Waiting] = ()
) -> Step:
    """A seat each: ``"P a"`` reads sequence ``a``'s prompt, ``"D a"`` decodes, ``"H a"`` is held, ``""`` is empty."""
    phases = {"P": "prefill", "D": "decode", "H": "held"}
    rows = [Row(seat, words[2:], phases[words[0]]) for seat, words in enumerate(seats) if words]
    start_s = number / 10 if start_s is None else start_s
    return Step(number, policy, start_s, start_s + 0.05, rows, list(waiting), 10, 1000)


def quantiles(p50: float, p95: float) -> Quantiles:
    return Quantiles(p50, p95)


@dataclass
class Source:
    """Answers as the test says; counts what it is asked."""

    told: Figures = field(default_factory=figures)
    log: list[Step] = field(default_factory=list)
    known: Facts | None = FACTS
    asked: list[tuple[int, int]] = field(default_factory=list)
    fault: Exception | None = None

    def figures(self) -> Figures:
        if self.fault is not None:
            raise self.fault
        return self.told

    def facts(self) -> Facts | None:
        return self.known

    def steps(self, since: int, limit: int) -> StepPage:
        """As ``/steps`` does: who has more than there is is sent back to the end."""
        self.asked.append((since, limit))
        newest = self.log[-1].step if self.log else -1
        page = [one for one in self.log if one.step > since][:limit]
        return StepPage(page, page[-1].step if page else min(since, newest))
