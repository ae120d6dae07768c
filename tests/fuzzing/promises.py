"""What every policy promises of a step, checked from outside: by plans, events and waiting lines alone.

Owns the rules of seats, budgets, blocks, rounds, order and bounded waiting.  ``sched/line.py`` states the theorem that
:class:`Promises` asserts.  Ignorant of how a policy keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from everystep.sched import BlockPool
from everystep.types import Policy, Row, Sequence, StepPlan, WaitCause
from fuzzing.scenes import MAX_MODEL_LEN, MAX_TOKENS, Scene

EPSILON = 1e-6


@dataclass
class Wait:
    """One live sequence's wait: steps of its lane since nobody who comes can go before it any more."""

    num_before: int  # live ones of a better rank at that moment
    num_steps: int = 0


@dataclass
class Promises:
    """Remembers of each lane what the next step is measured against."""

    scene: Scene
    pool: BlockPool
    lanes: Mapping[str, Policy]
    _round: set[str] = field(default_factory=set)  # ids of the static round's members
    _waits: dict[str, Wait] = field(default_factory=dict)

    def look(self, now_s: float, live: list[Sequence]) -> None:
        """Call it before a step.  Starts the count for those whom nobody new can overtake."""
        for sequence in live:
            if sequence.sequence_id not in self._waits and now_s > self._last_overtaker_s(sequence):
                before = [other for other in live if self._goes_before(other, sequence)]
                self._waits[sequence.sequence_id] = Wait(len(before))

    # --- before the pass --------------------------------------------------------------------------
    def check_plan(self, plan: StepPlan) -> None:
        lane = self.lanes[plan.policy]
        everybody = plan.rows + plan.held
        seats = [row.seat for row in everybody]
        assert len(set(seats)) == len(seats), "a seat is given twice"
        assert all(0 <= seat < lane.num_seats for seat in seats), "a seat that isn't there"
        assert len({row.sequence.sequence_id for row in everybody}) == len(everybody), "a sequence has two rows"
        assert all(row.num_new_tokens == 0 and row.sequence.is_finished for row in plan.held)
        self._check_rows(plan.rows)
        getattr(self, f"_check_{plan.policy}")(lane, plan)
        self._check_causes(lane, plan)
        self.check_order(lane, plan)

    def _check_rows(self, rows: tuple[Row, ...]) -> None:
        written: list[int] = []
        size = self.pool.block_size
        for row in rows:
            assert row.num_new_tokens > 0, "a row without new tokens is computed"
            assert row.start == row.sequence.num_computed_tokens, "a token is skipped or computed twice"
            assert row.end <= row.sequence.num_tokens, "a row beyond its known tokens"
            assert not row.sequence.is_finished, "an ended sequence is computed"
            assert len(row.sequence.block_ids) * size >= row.end, "a row has no block for its tokens"
            written += row.sequence.block_ids[row.start // size : -(-row.end // size)]
        assert len(set(written)) == len(written), "two rows write into one block"
        assert all(self.pool.num_refs(block) == 1 for block in written), "a row writes into a shared block"

    def _check_static(self, lane: Policy, plan: StepPlan) -> None:
        """A round is seated whole; nobody joins it midway."""
        members = {row.sequence.sequence_id for row in plan.rows + plan.held}
        if lane.last_started:
            assert set(lane.last_started) == members, "somebody was admitted midway into a round"
            prompts = [row.sequence.num_prompt_tokens for row in plan.rows]
            bound = self.scene.settings.static_max_batch_tokens
            assert bound is None or len(prompts) == 1 or sum(prompts) <= bound, "a round over its tokens"
        else:
            assert members <= self._round, "somebody was admitted midway into a round"
        self._round = members

    def _check_per_token(self, lane: Policy, plan: StepPlan) -> None:
        assert plan.held == (), "a seat is held"
        known = [row.sequence.num_tokens for row in plan.rows]
        bound = self.scene.settings.per_token_max_batch_tokens
        is_bound = bound is not None and len(known) > 1 and bool(lane.last_started)
        assert not is_bound or sum(known) <= (bound or 0), "a batch over its tokens"

    def _check_continuous(self, lane: Policy, plan: StepPlan) -> None:
        assert plan.held == (), "a seat is held"
        assert plan.num_new_tokens <= self.scene.settings.max_num_batched_tokens, "a step over its budget"
        assert not (lane.last_preempted and lane.last_started), "a step takes a seat and gives one"

    def _check_causes(self, lane: Policy, plan: StepPlan) -> None:
        told = lane.why_waiting()
        assert lane.why_waiting() is told
        waiting = {entry.sequence.sequence_id for entry in told}
        assert not waiting & {row.sequence.sequence_id for row in plan.rows}, "a row waits"
        assert all((entry.why is WaitCause.BEHIND) == (entry.behind is not None) for entry in told)

    # --- after the step ---------------------------------------------------------------------------
    def check_step(self, policy: str, live: list[Sequence]) -> None:
        """Nobody waits longer than the theorem's bound, in steps."""
        alive = {sequence.sequence_id: sequence for sequence in live}
        self._waits = {name: wait for name, wait in self._waits.items() if name in alive}
        for name, wait in self._waits.items():
            if len(self.lanes) > 1 or alive[name].policy == policy:
                wait.num_steps += 1
            bound = (wait.num_before + 1) * self.steps_to_end
            assert wait.num_steps <= bound, (
                f"{name} hasn't ended {wait.num_steps} steps after nobody new could overtake it; "
                f"{wait.num_before} were before it, so the bound is {bound}"
            )

    def check_order(self, lane: Policy, plan: StepPlan) -> None:
        """Nobody is overtaken by who came later than ageing_s × the difference of priorities."""
        left = [entry.sequence for entry in lane.why_waiting()]
        started = [row.sequence for row in plan.rows if row.sequence.sequence_id in lane.last_started]
        for first in started:
            for other in left:
                self._check_overtaking(first, other)

    def _check_overtaking(self, first: Sequence, other: Sequence) -> None:
        later_s = first.arrival_s - other.arrival_s
        bound_s = self.scene.settings.ageing_s * (other.priority - first.priority)
        assert later_s <= bound_s + EPSILON, (
            f"{first.sequence_id} came {later_s:g} s after {other.sequence_id} and sat down before it; "
            f"its priority is worth {bound_s:g} s"
        )

    @cached_property
    def steps_to_end(self) -> int:
        """Steps in which the best-ranked sequence of a lane ends, whatever runs when it becomes that: T of the theorem.

        Where lanes share a pool it is counted in steps of all: see the theorem.
        """
        bounds = [self._lane_bound(lane) for lane in self.lanes]
        return bounds[0] if len(bounds) == 1 else len(bounds) * sum(bounds) * MAX_TOKENS

    def _lane_bound(self, lane: str) -> int:
        longest = min(self.scene.cache_tokens + 1, MAX_MODEL_LEN)
        if lane != "continuous":
            return 2 * MAX_TOKENS
        settings = self.scene.settings
        chunk = settings.max_num_batched_tokens - settings.max_num_seqs + 1
        return -(-settings.max_num_seqs * longest // chunk) + -(-longest // chunk) + 2 * MAX_TOKENS + 2

    def _last_overtaker_s(self, sequence: Sequence) -> float:
        """Who comes later than this and has the best priority of all, 0, ranks behind the sequence."""
        return sequence.arrival_s + self.scene.settings.ageing_s * sequence.priority

    def _goes_before(self, other: Sequence, sequence: Sequence) -> bool:
        if other.policy != sequence.policy:
            return False
        later_s = other.arrival_s - sequence.arrival_s
        return later_s <= self.scene.settings.ageing_s * (sequence.priority - other.priority) + EPSILON
