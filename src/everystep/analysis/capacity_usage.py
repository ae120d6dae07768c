"""What a replica was busy with at a rate: steps, seats, tokens, blocks, and why others waited.

Owns the shares and what they are shares of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from everystep.analysis.capacity_cases import Case
from everystep.analysis.capacity_probe import Probe, judge
from everystep.analysis.load import Load
from everystep.analysis.outcome import Outcome, Slo
from everystep.analysis.simulator import simulate
from everystep.types import Policy, StepPlan


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares go from 0 to 1; a mean over step time weighs each step by its seconds."""

    busy: float  # share of the time, from the first arrival to the last token, in which a step ran
    seats: float  # share of the seats that computed a row; mean over step time
    held: float  # share of the seats kept by rows that had ended before their round; mean over step time
    budget: float | None  # share of the step's token budget that was spent; mean over step time; None without one
    blocks: float  # share of the KV blocks that running rows had filled; mean over step time
    blocks_peak: float  # the same at its highest
    in_system: float  # requests waiting or running, on average: rate × mean E2E (Little, 1961)
    longest_line: int  # most requests that waited at once
    preemptions: int
    waiting: Mapping[str, float]  # share of step time in which somebody waited, by the cause of the head of the line


def probe_with_usage(case: Case, loads: Sequence[Load], rate: float, slo: Slo) -> tuple[Probe, Usage]:
    """As :func:`everystep.analysis.capacity_probe.probe`, with an eye on every step."""
    meter = _Meter(case.machine.block_size)
    run = partial(simulate, on_lane=meter.on_lane, on_step=meter.on_step, is_line_bounded=True)
    outcomes = [run(load, case.settings, case.policy, case.machine) for load in loads]
    probed = judge(outcomes, rate, slo)
    budget = case.settings.max_num_batched_tokens if case.policy == "continuous" else None
    return probed, meter.usage(outcomes, budget, case.machine.num_blocks, rate * probed.e2e_mean_s)


@dataclass(slots=True)
class _Meter:
    """Adds up seconds while the simulator steps."""

    block_size: int
    lanes: list[Policy] = field(default_factory=list)  # one a draw; the last is running
    busy_s: float = 0.0
    row_s: float = 0.0
    held_s: float = 0.0
    token_s: float = 0.0
    block_s: float = 0.0
    most_blocks: int = 0
    longest_line: int = 0
    waiting_s: dict[str, float] = field(default_factory=dict)

    def on_lane(self, lane: Policy) -> None:
        self.lanes.append(lane)

    def on_step(self, plan: StepPlan, start_s: float, end_s: float) -> None:
        step_s = end_s - start_s
        num_blocks = sum(-(-row.end // self.block_size) for row in plan.rows)
        self.busy_s += step_s
        self.row_s += step_s * len(plan.rows)
        self.held_s += step_s * len(plan.held)
        self.token_s += step_s * plan.num_new_tokens
        self.block_s += step_s * num_blocks
        self.most_blocks = max(self.most_blocks, num_blocks)
        if waiting := self.lanes[-1].why_waiting():
            cause = waiting[0].why.value
            self.waiting_s[cause] = self.waiting_s.get(cause, 0.0) + step_s
            self.longest_line = max(self.longest_line, len(waiting))

    def usage(self, outcomes: Sequence[Outcome], budget: int | None, num_blocks: int, in_system: float) -> Usage:
        busy_s, seat_s = self.busy_s, self.busy_s * self.lanes[-1].num_seats
        return Usage(
            busy=busy_s / sum(outcome.wall_s for outcome in outcomes),
            seats=self.row_s / seat_s,
            held=self.held_s / seat_s,
            budget=self.token_s / (busy_s * budget) if budget else None,
            blocks=self.block_s / (busy_s * num_blocks),
            blocks_peak=self.most_blocks / num_blocks,
            in_system=in_system,
            longest_line=self.longest_line,
            preemptions=sum(lane.num_preemptions for lane in self.lanes),
            waiting={cause: seconds / busy_s for cause, seconds in sorted(self.waiting_s.items())},
        )
