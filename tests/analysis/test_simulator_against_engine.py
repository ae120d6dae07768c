"""The simulator's loop against the engine's own core on the fake runner: the same rows in the same steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.analysis.virtual_engine import Coming, Leaving, VirtualEngine
from everystep.config import Settings
from everystep.engine.core import EngineCore
from everystep.messages import Abort, Submit
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.sched.from_settings import POLICIES, build_lanes
from everystep.types import FinishReason

BLOCK_SIZE = 4
MAX_MODEL_LEN = 60


def cost_s(plan):
    """Exact in binary, so that both add up to the same times."""
    return 0.25 + plan.num_new_tokens / 8


def told(plan, start_s, end_s):
    rows = [(row.sequence.sequence_id, row.seat, row.start, row.num_new_tokens) for row in plan.rows]
    return (plan.policy, start_s, end_s, rows, [(row.sequence.sequence_id, row.seat) for row in plan.held])


class Driven:
    """An engine core whose clock moves by what each pass costs, and whose messages come when they are due.

    The order is the worker's: drain, step, drain in the middle of the step; wait where nobody can run.
    """

    def __init__(self, messages, choices, num_blocks):
        self.now_s = 0.0
        self.inbox = list(messages)
        self.steps = []
        self.runner = FakeRunner(block_size=BLOCK_SIZE, step_s=self._pass)
        self.runner.allocate(num_blocks)
        pool = BlockPool(num_blocks, BLOCK_SIZE, prefix_cache=choices.prefix_cache)
        self.core = EngineCore(
            runner=self.runner,
            lanes=build_lanes(choices, pool, MAX_MODEL_LEN),
            pool=pool,
            now_s=lambda: self.now_s,
            drain=self._drain,
            check_when_idle=True,
        )
        self.num_tokens = {}

    def run(self):
        while True:
            self._drain()
            output = self.core.step()
            if output is not None:
                for event in output.events:
                    self.num_tokens[event.sequence_id] = self.num_tokens.get(event.sequence_id, 0) + 1
            elif self.inbox or self.core.next_ready_s() is not None:
                ready_s = self.core.next_ready_s()
                times = [message.at_s for message in self.inbox[:1]] + ([] if ready_s is None else [ready_s])
                self.now_s = min(times)
            else:
                return self

    def _pass(self, plan):
        start_s, self.now_s = self.now_s, self.now_s + cost_s(plan)
        self.steps.append(told(plan, start_s, self.now_s))
        return self.now_s - start_s

    def _drain(self):
        while self.inbox and self.inbox[0].at_s <= self.now_s:
            message = self.inbox.pop(0)
            if isinstance(message, Leaving):
                self.core.abort(Abort(str(message.index), FinishReason.ABORTED))
            else:
                self.core.submit(_submit(message))


def _submit(coming):
    prompt = tuple(1000 * coming.index + place for place in range(coming.prompt_tokens))
    name, params = str(coming.index), SamplingParams(max_tokens=coming.output_tokens, ignore_eos=True)
    return Submit(name, name, coming.policy, prompt, params, 0, (), 0, coming.at_s)


times_s = st.integers(0, 160).map(lambda eighths: eighths / 8)


@st.composite
def traffic(draw, policies):
    """Up to 25 sequences in one or more lanes, some of which leave."""
    count = draw(st.integers(1, 25))
    messages = [
        Coming(
            draw(times_s), index, draw(st.sampled_from(policies)), draw(st.integers(1, 40)), draw(st.integers(1, 12))
        )
        for index in range(count)
    ]
    leavers = draw(st.sets(st.integers(0, count - 1), max_size=3))
    messages += [Leaving(draw(times_s), index) for index in sorted(leavers)]
    return sorted(messages, key=lambda message: message.at_s)


choices = st.builds(
    Settings,
    static_batch_size=st.integers(1, 4),
    static_max_wait=st.sampled_from([0.0, 1.5]),
    static_max_batch_tokens=st.sampled_from([None, 30]),
    per_token_batch_size=st.integers(1, 4),
    per_token_max_batch_tokens=st.sampled_from([None, 60]),
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 40),
    prefix_cache=st.booleans(),
)


def assert_the_same(messages, choices, num_blocks):
    driven = Driven(messages, choices, num_blocks).run()
    steps = []
    pool = BlockPool(num_blocks, BLOCK_SIZE, prefix_cache=choices.prefix_cache)
    lanes = build_lanes(choices, pool, MAX_MODEL_LEN)
    engine = VirtualEngine(lanes, cost_s, lambda plan, start_s, end_s: steps.append(told(plan, start_s, end_s)))
    engine.run(messages)
    assert steps == driven.steps
    drawn = {str(index): len(life.token_times_s) for index, life in engine.lives.items() if life.token_times_s}
    assert drawn == driven.num_tokens
    return engine


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), choices=choices, num_blocks=st.integers(8, 40))
def test_a_simulated_lane_seats_whom_the_engine_seats_at_every_step(policy, data, choices, num_blocks):
    assert_the_same(data.draw(traffic([policy])), choices, num_blocks)


@settings(max_examples=25, deadline=None)
@given(messages=traffic(POLICIES), choices=choices, num_blocks=st.integers(16, 40))
def test_simulated_lanes_take_turns_as_the_engines_do(messages, choices, num_blocks):
    assert_the_same(messages, choices, num_blocks)


def test_the_comparison_covers_preemption_and_departures():
    """What the random loads are trusted to hold, held by one that is sure to."""
    messages = [Coming(0.0, index, "continuous", 14, 12) for index in range(3)] + [Leaving(9.0, 2)]
    engine = assert_the_same(messages, Settings(prefix_cache=True), 14)
    assert engine.lives[2].error == "aborted"
    (lane,) = (lane for name, lane in engine._turns.lanes.items() if name == "continuous")
    assert lane.num_preemptions > 0
