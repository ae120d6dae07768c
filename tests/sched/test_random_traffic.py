"""Every lane under random arrivals, departures, failures and scarce blocks.

The bench checks each step: seats, budgets of blocks, owners of every block, no row writing what another reads.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from everystep.runner.fake import FakeRunner, next_token
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import FinishReason, Sequence, StepPlan

AGEING_S = 5.0
EOS = 0
EOS_RATE = 0.1
VOCAB = 50
BUDGET = 7

# A few texts that begin alike, so that prefixes are shared, and that part at and beside block borders.
PROMPTS = [
    [*beginning, *[ending] * length]
    for beginning in ([], [1] * 4, [1] * 7, [1] * 8, [2] * 4 + [1] * 4)
    for ending, length in ((3, 1), (4, 3), (3, 6))
]


def make_lanes(names: tuple[str, ...], pool: BlockPool) -> list[Any]:
    makers = {
        "static": lambda: StaticPolicy(3, pool=pool, ageing_s=AGEING_S),
        "static, bounded": lambda: StaticPolicy(3, pool=pool, max_batch_tokens=12, ageing_s=AGEING_S),
        "per_token": lambda: PerTokenPolicy(3, pool=pool, ageing_s=AGEING_S),
        "naive": lambda: PerTokenPolicy(3, pool=pool, reuse_cache=False, max_batch_tokens=20, ageing_s=AGEING_S),
        "continuous": lambda: ContinuousPolicy(4, BUDGET, pool=pool, ageing_s=AGEING_S),
    }
    return [makers[name]() for name in names]


def expected_tokens(prompt: list[int], sequence: Sequence, num_cache_tokens: int) -> list[int]:
    """The text one sequence alone would get, by a plain loop."""
    params = sequence.params
    known = list(prompt)
    while True:
        known.append(next_token(known, VOCAB, eos_token_id=EOS, eos_rate=EOS_RATE))
        num_output = len(known) - len(prompt)
        if known[-1] == EOS and not params.ignore_eos and num_output >= params.min_tokens:
            break
        if num_output == params.max_tokens or len(known) > num_cache_tokens:
            break
    return known[len(prompt) :]


class Traffic(RuleBasedStateMachine):
    """One lane or several; at the end everything runs out and every text is compared."""

    lane_names: ClassVar[tuple[str, ...]] = ()
    stage: Any

    def __init__(self, new_sequence: Any, new_bench: Any) -> None:
        super().__init__()
        self.new_sequence, self.new_bench = new_sequence, new_bench
        self.prompts: dict[str, list[int]] = {}
        self.lane_of: dict[str, Any] = {}
        self.failing: set[str] = set()

    @initialize(num_blocks=st.integers(4, 10), prefix_cache=st.booleans())
    def start(self, num_blocks: int, prefix_cache: bool) -> None:
        pool = BlockPool(num_blocks, 4, prefix_cache=prefix_cache)
        runner = FakeRunner(vocab_size=VOCAB, block_size=4, eos_token_id=EOS, eos_rate=EOS_RATE)
        lanes = make_lanes(self.lane_names, pool)
        self.stage = self.new_bench(*lanes, runner=runner)
        self.lanes = lanes

    @rule(
        lane=st.integers(0, 2),
        prompt=st.sampled_from(PROMPTS),
        max_tokens=st.integers(1, 14),
        min_tokens=st.integers(0, 4),
        ignore_eos=st.booleans(),
        priority=st.integers(0, 4),
    )
    def arrive(
        self, lane: int, prompt: list[int], max_tokens: int, min_tokens: int, ignore_eos: bool, priority: int
    ) -> None:
        name = str(len(self.prompts))
        self.prompts[name] = prompt
        self.lane_of[name] = self.lanes[lane % len(self.lanes)]
        sequence = self.new_sequence(
            name,
            prompt,
            max_tokens,
            min_tokens=min(min_tokens, max_tokens),
            ignore_eos=ignore_eos,
            priority=priority,
            arrival_s=self.stage.now_s,
            eos_token_ids=frozenset({EOS}),
        )
        self.stage.add(sequence, lane=self.lane_of[name])

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.now_s += seconds

    @rule(num_steps=st.integers(1, 6))
    def steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if any(lane.has_work() for lane in self.lanes):
                self.step()

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), during_the_pass=st.booleans())
    def leave(self, data: st.DataObject, during_the_pass: bool) -> None:
        name = data.draw(st.sampled_from(self.alive()))
        if not during_the_pass:
            self.stage.abort(name)
            return
        self.stage.before_apply = lambda: self.stage.abort(name)
        self.step()
        self.stage.before_apply = lambda: None

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.alive()))
        self.failing.add(name)
        self.stage.runner.fails[name] = "broken"

    def alive(self) -> list[str]:
        return [name for name in self.prompts if name not in self.stage.ends]

    def step(self) -> None:
        waiting = {lane: [entry.sequence for entry in lane.why_waiting()] for lane in self.lanes}
        plan = self.stage.step()
        assert plan is not None, "lanes have work and none can run"
        (lane,) = [lane for lane in self.lanes if lane.name == plan.policy]
        self.check_promises(lane, plan)
        self.check_order(lane, waiting[lane])
        self.check_causes(lane, plan)

    def check_promises(self, lane: Any, plan: StepPlan) -> None:
        if isinstance(lane, ContinuousPolicy):
            assert plan.num_new_tokens <= BUDGET
            assert not (lane.last_preempted and lane.last_started)
        if isinstance(lane, StaticPolicy):
            assert not lane.last_started or len(lane.last_started) == len(plan.rows) + len(plan.held)
        else:
            assert plan.held == ()

    def check_order(self, lane: Any, waiting: list[Sequence]) -> None:
        """Nobody sat down before one whose priority, improved by one per AGEING_S of waiting, was better."""

        def aged(sequence: Sequence) -> float:
            return sequence.priority - (self.stage.now_s - sequence.arrival_s) / AGEING_S

        started = [sequence for sequence in waiting if sequence.sequence_id in lane.last_started]
        left = [sequence for sequence in waiting if sequence.sequence_id not in lane.last_started]
        still = [sequence for sequence in left if not sequence.is_finished]
        assert all(aged(first) <= aged(other) + 1e-6 for first in started for other in still)

    def check_causes(self, lane: Any, plan: StepPlan) -> None:
        told = lane.why_waiting()
        assert lane.why_waiting() is told
        assert not {entry.sequence.sequence_id for entry in told} & {row.sequence.sequence_id for row in plan.rows}
        assert all((entry.why == "behind") == (entry.behind is not None) for entry in told)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        max_steps = 100 + 40 * len(self.prompts)  # each alone takes at most 14 steps and two chunks
        while any(lane.has_work() for lane in self.lanes):
            self.step()
            self.stage.now_s += 0.1
            max_steps -= 1
            assert max_steps, "the work doesn't end"
        assert self.stage.pool.num_used_blocks == 0
        assert self.stage.pool.num_admittable("a newcomer") == self.stage.pool.num_blocks
        assert set(self.stage.ends) == set(self.prompts)
        for name, reason in self.stage.ends.items():
            self.check_text(name, reason)

    def check_text(self, name: str, reason: FinishReason) -> None:
        sequence, got = self.stage.sequences[name], self.stage.tokens[name]
        assert sequence.token_ids == self.prompts[name] + got
        expected = expected_tokens(self.prompts[name], sequence, self.stage.pool.num_tokens)
        if reason in (FinishReason.ABORTED, FinishReason.FAILED):
            assert got == expected[: len(got)]
            assert reason is FinishReason.ABORTED or name in self.failing
        else:
            assert got == expected
            assert (reason is FinishReason.STOP) == (got[-1] == EOS and not sequence.params.ignore_eos)


@pytest.mark.parametrize(
    "names",
    [
        ("static",),
        ("static, bounded",),
        ("per_token",),
        ("naive",),
        ("continuous",),
        ("static", "per_token", "continuous"),
    ],
    ids=" + ".join,
)
def test_no_token_is_lost_or_doubled_and_everybody_ends_once(names: tuple[str, ...], seq: Any, bench: Any) -> None:
    class TrafficOfTheseLanes(Traffic):
        lane_names = names

        def __init__(self) -> None:
            super().__init__(seq, bench)

    run_state_machine_as_test(
        TrafficOfTheseLanes, settings=settings(max_examples=40, stateful_step_count=40, deadline=None)
    )


def first_start_s(ageing_s: float, seq: Any, bench: Any) -> float | None:
    """When one of priority 5 gets the only seat while one of priority 0 arrives each second, for 200 s."""
    stage = bench(ContinuousPolicy(1, 8, ageing_s=ageing_s))
    stage.add(seq("patient", 3, max_tokens=1, priority=5, arrival_s=0.0), seq("0 s", 3, max_tokens=1))
    for second in range(1, 200):
        stage.add(seq(f"{second} s", 3, max_tokens=1, arrival_s=float(second)))
        stage.now_s = float(second)
        if stage.step().rows[0].sequence.sequence_id == "patient":
            return stage.now_s
    return None


def test_waiting_is_bounded_by_ageing_times_the_difference_of_priorities(seq: Any, bench: Any) -> None:
    # At 50 s the patient one ranks with those that come now; the line then holds one, served in a second.
    started_s = first_start_s(10.0, seq, bench)
    assert started_s is not None
    assert 45.0 <= started_s <= 52.0


def test_with_hardly_any_ageing_the_same_sequence_would_starve(seq: Any, bench: Any) -> None:
    assert first_start_s(1e9, seq, bench) is None
