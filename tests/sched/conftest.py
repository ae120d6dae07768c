"""Sequences by name, and a bench on which lanes are stepped by hand and checked at every step."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceABC
from itertools import count

import pytest

from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.types import FinishReason, Policy, Row, Sequence, StepPlan

_arrivals = count()


def new_sequence(
    name: str,
    prompt: int | SequenceABC[int] = 5,
    max_tokens: int = 4,
    *,
    priority: int = 0,
    arrival_s: float = 0.0,
    eos_token_ids: frozenset[int] = frozenset(),
    **params: object,
) -> Sequence:
    """A sequence; a prompt given as a length is made of tokens that no other name's prompt begins with."""
    prompt_ids = [hash_of(name) + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    return Sequence(
        sequence_id=name,
        request_id=f"request of {name}",
        policy="any",
        token_ids=prompt_ids,
        num_prompt_tokens=len(prompt_ids),
        params=SamplingParams(max_tokens=max_tokens, **params),  # type: ignore[arg-type]
        seed=0,
        eos_token_ids=eos_token_ids,
        priority=priority,
        arrival_s=arrival_s,
        arrival_index=next(_arrivals),
    )


def hash_of(name: str) -> int:
    return sum(ord(letter) * 1009**place for place, letter in enumerate(name)) % 10**9


class Bench:
    """Lanes of one pool on one fake runner, served in turn, a step each, as the engine does."""

    def __init__(self, *lanes: Policy, runner: FakeRunner | None = None) -> None:
        self.lanes = list(lanes)
        self.pool: BlockPool = lanes[0].pool  # type: ignore[attr-defined]
        self.runner = runner or FakeRunner(block_size=self.pool.block_size)
        self.runner.allocate(self.pool.num_blocks)
        self.now_s = 0.0
        self.plans: list[StepPlan] = []
        self.sequences: dict[str, Sequence] = {}
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}
        self.before_apply: Callable[[], None] = lambda: None  # what happens during the forward pass

    def add(self, *sequences: Sequence, lane: Policy | None = None) -> None:
        for sequence in sequences:
            (lane or self.lanes[0]).add(sequence)
            self.sequences[sequence.sequence_id] = sequence
            self.tokens[sequence.sequence_id] = []

    def abort(self, name: str) -> None:
        assert sum(lane.abort(name) for lane in self.lanes) == 1
        assert self.sequences[name].block_ids == []
        self._end(name, FinishReason.ABORTED)
        self.check_blocks()

    def step(self) -> StepPlan | None:
        """One step of the first lane in turn that can run; ``None`` if none can."""
        for lane in list(self.lanes):
            if not lane.has_work():
                continue
            plan = lane.plan(self.now_s)
            self.check_blocks()
            if plan.rows:
                self.lanes.remove(lane)
                self.lanes.append(lane)
                self._serve(lane, plan)
                return plan
        return None

    def run(self, max_steps: int = 1000) -> list[StepPlan]:
        """Step until all have ended; nobody may be left though no lane can run."""
        first = len(self.plans)
        for _ in range(max_steps):
            if not any(lane.has_work() for lane in self.lanes):
                assert self.pool.num_used_blocks == 0
                return self.plans[first:]
            assert self.step() is not None, "lanes have work and none can run"
            self.now_s += 0.01
        raise AssertionError(f"not done after {max_steps} steps")

    def why(self, lane: Policy | None = None) -> list[tuple[str, str, str | None]]:
        waiting = (lane or self.lanes[0]).why_waiting()
        return [(entry.sequence.sequence_id, entry.why.value, entry.behind) for entry in waiting]

    def check_blocks(self) -> None:
        self.pool.check([sequence.block_ids for sequence in self.sequences.values()])

    def _serve(self, lane: Policy, plan: StepPlan) -> None:
        self.plans.append(plan)
        self._check_plan(lane, plan)
        sampled = {row.sequence.sequence_id for row in plan.rows if row.samples}
        result = self.runner.run(plan)
        self.before_apply()
        events = lane.apply(plan, result)
        assert len({event.sequence_id for event in events}) == len(events)
        for event in events:
            if event.token is not None:
                assert event.sequence_id in sampled
                self.tokens[event.sequence_id].append(event.token.token_id)
            if event.finish_reason is not None:
                self._end(event.sequence_id, event.finish_reason)
        self.check_blocks()

    def _end(self, name: str, reason: FinishReason) -> None:
        assert name not in self.ends, f"{name} ended twice"
        assert self.sequences[name].finish_reason is reason
        self.ends[name] = reason

    def _check_plan(self, lane: Policy, plan: StepPlan) -> None:
        everybody = plan.rows + plan.held
        seats = [row.seat for row in everybody]
        assert len(set(seats)) == len(seats)
        assert all(0 <= seat < lane.num_seats for seat in seats)
        assert len({row.sequence.sequence_id for row in everybody}) == len(everybody)
        assert all(row.num_new_tokens == 0 and row.sequence.is_finished for row in plan.held)
        written: list[int] = []
        for row in plan.rows:
            assert row.num_new_tokens > 0
            assert row.end <= row.sequence.num_tokens
            assert not row.sequence.is_finished
            written += self._written_blocks(row)
        assert len(set(written)) == len(written), "two rows write into one block"
        assert all(self.pool.num_refs(block) == 1 for block in written), "a row writes into a shared block"

    def _written_blocks(self, row: Row) -> list[int]:
        size = self.pool.block_size
        assert len(row.sequence.block_ids) * size >= row.end
        return row.sequence.block_ids[row.start // size : -(-row.end // size)]


@pytest.fixture(scope="session")
def seq() -> Callable[..., Sequence]:
    return new_sequence


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench
