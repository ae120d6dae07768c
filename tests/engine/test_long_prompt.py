"""While a long prompt is read, every decoding neighbour takes part in every step, and no step exceeds the budget.

So a neighbour's longest gap between tokens is one budgeted step, whatever the prompt's length.  The time of a step is
``benchmarks/long_prompt.py``'s subject; here its work is counted, on the fake runner.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.engine.core import EngineCore
from everystep.messages import StepRecord, Submit
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy

NUM_BLOCKS, BLOCK_SIZE, CONTEXT = 1_024, 16, 8_192
PARAMS = SamplingParams(max_tokens=900, ignore_eos=True)


class Crowd:
    """Neighbours that decode in a continuous lane; then long prompts come."""

    def __init__(self, num_neighbours: int, budget: int, num_seats: int) -> None:
        runner = FakeRunner(block_size=BLOCK_SIZE)
        runner.allocate(NUM_BLOCKS)
        pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE)
        lane = ContinuousPolicy(num_seats, budget, pool=pool, max_model_len=CONTEXT)
        self.core = EngineCore(runner=runner, lanes={"continuous": lane}, pool=pool, now_s=lambda: 0.0)
        self.neighbours = {f"n{i}" for i in range(num_neighbours)}
        for i in range(num_neighbours):
            self.submit(f"n{i}", (i + 1, 2))
            while f"n{i}" not in self.step()[1]:
                pass

    def submit(self, name: str, prompt: tuple[int, ...]) -> None:
        self.core.submit(Submit(name, name, "continuous", prompt, PARAMS, 0, (), 0, 0.0))

    def step(self) -> tuple[dict[str, int], set[str]]:
        """Who took part with how many new tokens, and who got a token."""
        output = self.core.step()
        assert output is not None
        record = msgspec.msgpack.decode(output.record, type=StepRecord)
        drawn = {event.sequence_id for event in output.events if event.token}
        return {row.sequence_id: row.new_tokens for row in record.rows}, drawn

    def read(self, name: str) -> list[dict[str, int]]:
        """The steps until that prompt's first token."""
        steps: list[dict[str, int]] = []
        drawn: set[str] = set()
        while name not in drawn:
            rows, drawn = self.step()
            assert self.neighbours <= drawn, "a neighbour got no token in a step of its lane"
            steps.append(rows)
        return steps


sizes = st.integers(1, 12).flatmap(lambda num: st.tuples(st.just(num), st.integers(num + 1, 600)))


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, num_prompt=st.integers(1, 700))
def test_every_neighbour_is_in_every_step_and_no_step_exceeds_the_budget(
    sizes: tuple[int, int], num_prompt: int
) -> None:
    num_neighbours, budget = sizes
    crowd = Crowd(num_neighbours, budget, num_neighbours + 1)
    crowd.submit("long", tuple(range(7, 7 + num_prompt)))
    chunk, steps = budget - num_neighbours, crowd.read("long")
    assert len(steps) == -(-num_prompt // chunk), "the neighbours' tokens come off the budget, and nothing else does"
    for rows in steps:
        assert 0 < rows["long"] <= chunk
        assert {name: rows[name] for name in crowd.neighbours} == dict.fromkeys(crowd.neighbours, 1)


@pytest.mark.parametrize("budget", [64, 128, 512, 4_008])
def test_a_neighbour_waits_one_budgeted_step_for_each_token_while_4_000_tokens_are_read(budget: int) -> None:
    """Unchunked, which the last budget is, that one step is the whole prompt."""
    crowd = Crowd(8, budget, 16)
    crowd.submit("long", tuple(range(4_000)))
    steps = crowd.read("long")
    assert len(steps) == -(-4_000 // (budget - 8))
    assert max(sum(rows.values()) for rows in steps) == budget


@pytest.mark.parametrize("num_long", [2, 5])
def test_several_long_prompts_share_the_budget_of_one(num_long: int) -> None:
    crowd = Crowd(4, 32, 16)
    for i in range(num_long):
        crowd.submit(f"long{i}", tuple(range(100 * i, 100 * i + 100)))
    steps = [rows for i in range(num_long) for rows in crowd.read(f"long{i}")]
    assert max(sum(rows.values()) for rows in steps) <= 32
    assert len(steps) >= num_long * 100 // 28
