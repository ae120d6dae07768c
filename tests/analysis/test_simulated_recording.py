"""The simulator against a real run: a server on a real model, recorded, with its own costs fed back in.

No timing is in this test: the costs are the recorded ones, so what is compared is the order of events alone.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from everystep.analysis.virtual_engine import Coming, Leaving, VirtualEngine
from everystep.config import Settings
from everystep.observe.schedule import Aborted, Header, Idled, Planned, Refused, Stepped, Submitted
from everystep.observe.schedule_reader import Input, Turn, read_schedule
from everystep.sched import BlockPool
from everystep.sched.from_settings import build_lanes
from everystep.schedule_replay import replay_schedule
from everystep.types import StepPlan

RECORDING = Path(__file__).parent / "recorded" / "smollm2.jsonl"

Rows = tuple[tuple[int, int, int, int], ...]
Membership = tuple[str, Rows, tuple[tuple[int, int], ...]]  # lane, (who, seat, start, count), (who, seat) of the held


@pytest.fixture(scope="module")
def recording() -> tuple[Header, list[Turn]]:
    header, *turns = read_schedule(RECORDING)
    assert isinstance(header, Header)
    return header, [turn for turn in turns if isinstance(turn, Turn)]


def steps_of(turns: list[Turn]) -> list[Planned]:
    return [turn.ran for turn in turns if isinstance(turn.ran, Planned)]


class Feed:
    """What the simulator is given of a recording: messages at their times, and each step's cost.

    A step costs the seconds until the next plan, with what the engine does between two passes; the last before the
    engine falls idle, those until its own end.  A message keeps its recorded time, but for those that woke an idle
    engine: a request's prompts are taken in microseconds apart, and the first look comes behind them all.
    """

    def __init__(self, turns: list[Turn]) -> None:
        self.messages: list[Coming | Leaving] = []
        self.costs_s: list[float] = []
        self._numbers: dict[str, int] = {}
        self._alive: set[int] = set()
        is_idle = True
        for turn, later in zip(turns, [*turns[1:], Turn()], strict=True):
            assert turn.ran is not None
            for line in turn.before:
                self._take(line, turn.ran.now_s if is_idle else line_at_s(line))
            for line in turn.during:
                self._take(line, line_at_s(line))
            if isinstance(turn.result, Stepped):
                self._alive -= {end.n for end in turn.result.ends}
            is_idle = not self._alive or isinstance(turn.ran, Idled)
            if isinstance(turn.ran, Planned):
                assert isinstance(turn.result, Stepped)
                end_s = turn.result.end_s if is_idle or later.ran is None else later.ran.now_s
                self.costs_s.append(end_s - turn.ran.now_s)

    def _take(self, line: Input, at_s: float) -> None:
        if isinstance(line, Submitted):
            self._numbers[line.sequence_id] = line.n
            self._alive.add(line.n)
            self.messages.append(
                Coming(at_s, line.n, line.lane, len(line.prompt_ids), line.message().params.max_tokens)
            )
        elif isinstance(line, Aborted):
            n = self._numbers[line.sequence_id]
            self._alive.discard(n)
            self.messages.append(Leaving(at_s, n))


def line_at_s(line: Input) -> float:
    assert not isinstance(line, Refused)
    return line.at_s


def recorded_membership(plan: Planned) -> Membership:
    rows = tuple((row.n, row.seat, row.start, row.num_new_tokens) for row in plan.rows)
    return plan.lane, rows, tuple((row.n, row.seat) for row in plan.held)


def simulated_membership(plan: StepPlan) -> Membership:
    rows = tuple((int(row.sequence.sequence_id), row.seat, row.start, row.num_new_tokens) for row in plan.rows)
    return plan.policy, rows, tuple((int(row.sequence.sequence_id), row.seat) for row in plan.held)


def simulate_recorded(header: Header, feed: Feed) -> list[Membership]:
    settings = Settings.model_validate({k: v for k, v in header.settings.items() if v is not None})
    pool = BlockPool(header.num_blocks, header.block_size, prefix_cache=settings.prefix_cache)
    costs_s, seen = iter(feed.costs_s), list[Membership]()
    engine = VirtualEngine(
        build_lanes(settings, pool, header.max_model_len),
        step_s=lambda plan: next(costs_s),
        on_step=lambda plan, start_s, end_s: seen.append(simulated_membership(plan)),
    )
    engine.run(feed.messages)
    return seen


def test_a_recorded_run_with_its_own_costs_is_simulated_with_the_same_rows_in_every_step(
    recording: tuple[Header, list[Turn]],
) -> None:
    header, turns = recording
    simulated = simulate_recorded(header, Feed(turns))
    expected = [recorded_membership(plan) for plan in steps_of(turns)]
    for number, (ours, theirs) in enumerate(zip(simulated, expected, strict=False)):
        assert ours == theirs, f"step {number}"
    assert len(simulated) == len(expected)


def test_with_other_costs_the_same_arrivals_meet_other_company(recording: tuple[Header, list[Turn]]) -> None:
    """Or the test above would show nothing: here each step takes half as long."""
    header, turns = recording
    feed = Feed(turns)
    feed.costs_s = [cost_s / 2 for cost_s in feed.costs_s] * 2
    assert simulate_recorded(header, feed) != [recorded_membership(plan) for plan in steps_of(turns)]


def test_the_recorded_run_has_all_three_lanes_departures_and_arrivals_during_a_pass(
    recording: tuple[Header, list[Turn]],
) -> None:
    _, turns = recording
    lanes = Counter(plan.lane for plan in steps_of(turns))
    assert min(lanes[name] for name in ("static", "per_token", "continuous")) > 20
    during = [line for turn in turns for line in turn.during]
    assert sum(isinstance(line, Submitted) for line in during) > 20
    everything = [line for turn in turns for line in (*turn.before, *turn.during)]
    reasons = Counter(str(line.reason) for line in everything if isinstance(line, Aborted))
    assert reasons["aborted"] > 2
    assert reasons["stop"] > 1
    assert max(len(plan.rows) for plan in steps_of(turns)) > 4
    assert sum(len(plan.held) for plan in steps_of(turns)) > 20


def test_the_recorded_schedule_is_replayed_equal_by_the_engine_itself() -> None:
    report = replay_schedule(RECORDING)
    assert report.is_equal, report
    assert report.num_steps > 150
