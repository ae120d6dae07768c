"""Policies with one fault each, on purpose: what the fuzz must find.

Owns the faults.  Each overrides one method of a right policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from everystep.config import Settings
from everystep.observe.schedule import Header
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import FinishReason, Policy, Sequence, StepPlan, StepResult, TokenEvent
from fuzzing.scenes import MakeLanes, right_lanes


class LeaksABlock(ContinuousPolicy):
    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            del sequence.block_ids[-1:]
        return super().abort(sequence_id, reason)


class AdmitsMidway(StaticPolicy):
    def plan(self, now_s: float) -> StepPlan:
        self._round = [member for member in self._round if not member.is_finished]
        if (
            self._round
            and self._line
            and len(self._round) < self.num_seats
            and self._reserve_worst_case(self._line.head)
        ):
            self._round.append(self._line.pop_head())
        return super().plan(now_s)


class DropsAToken(PerTokenPolicy):
    """The client isn't told of the second token of a step."""

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        events = super().apply(plan, result)
        return [event for place, event in enumerate(events) if place != 1 or event.finish_reason is not None]


class DoublesAToken(PerTokenPolicy):
    """A row that others leave in the same step is told its token twice."""

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        events = super().apply(plan, result)
        is_any_end = any(event.finish_reason is not None for event in events)
        return events + [event for event in events[:1] if is_any_end and event.finish_reason is None]


class WritesWhatIsShared(ContinuousPolicy):
    """Takes a hit for the whole text, so that the last token is computed into a block that others read."""

    def _match_prefix(self, sequence: Sequence) -> list[int]:
        num_full_blocks = sequence.num_tokens // self.pool.block_size
        return self.pool.match_prefix(self._keys.first(sequence, num_full_blocks)) if self.pool.prefix_cache else []

    def _count_hit(self, sequence: Sequence, num_tokens: int) -> None:
        super()._count_hit(sequence, min(num_tokens, sequence.num_tokens - 1))


class LosesASeat(ContinuousPolicy):
    def _unseat(self, sequence: Sequence) -> None:
        if sequence.finish_reason is not FinishReason.TIMEOUT:
            return super()._unseat(sequence)
        self._seats.pop(sequence.sequence_id)
        self._running = [running for running in self._running if running is not sequence]
        return None


class ForgetsWhatItSaid(ContinuousPolicy):
    """Who is preempted begins anew from its prompt."""

    def _preempt(self, sequence: Sequence) -> str:
        del sequence.token_ids[sequence.num_prompt_tokens :]
        return super()._preempt(sequence)


class EndsTwice(StaticPolicy):
    """Who ended in the round is still here for whoever takes it back."""

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        return super().abort(sequence_id, reason) or any(one.sequence_id == sequence_id for one in self._round)


class KeepsItsClaim(StaticPolicy):
    """Who left the line still keeps others from the blocks that it lacked."""

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        claims = dict(self.pool._claims)
        was_there = super().abort(sequence_id, reason)
        self.pool._claims.update(claims)
        return was_there


class TakesTheLastFirst(PerTokenPolicy):
    def _fill_seats(self) -> None:
        if len(self._line) > 1:
            last = list(self._line)[-1]
            self._line.remove(last)
            self._line._entries.insert(0, (self._line.rank(last), last))
        super()._fill_seats()


class ForgetsARow(ContinuousPolicy):
    """The first seat isn't computed while others are: who sits there waits as long as others come."""

    def plan(self, now_s: float) -> StepPlan:
        plan = super().plan(now_s)
        rows = [row for row in plan.rows if row.seat != 0] or list(plan.rows)
        return replace(plan, rows=tuple(rows))


def making(lane: str, mutant: type[Any]) -> MakeLanes:
    """Right lanes, but for one that has become the mutant."""

    def make(settings: Settings, pool: BlockPool, header: Header) -> Mapping[str, Policy]:
        lanes = dict(right_lanes(settings, pool, header))
        lanes[lane].__class__ = mutant  # the same arguments, seats and line; only methods differ
        return lanes

    return make


def with_a_token_too_many(settings: Settings, pool: BlockPool, header: Header) -> Mapping[str, Policy]:
    """A budget beyond what was asked for."""
    num_tokens = settings.max_num_batched_tokens + 1
    return right_lanes(settings.model_copy(update={"max_num_batched_tokens": num_tokens}), pool, header)


def without_ageing(settings: Settings, pool: BlockPool, header: Header) -> Mapping[str, Policy]:
    """Priorities that no waiting improves."""
    return right_lanes(settings.model_copy(update={"ageing_s": 1e12}), pool, header)


# What goes wrong → the scene in which it can, the lanes, and a word of the violated promise.
MUTANTS: dict[str, tuple[str, Callable[..., Mapping[str, Policy]], str]] = {
    "a block is leaked": ("continuous", making("continuous", LeaksABlock), "reference counts differ"),
    "a static round admits midway": ("static", making("static", AdmitsMidway), "midway"),
    "a token is lost": (
        "per_token",
        making("per_token", DropsAToken),
        "isn't what it gets alone|aren't those it was told",
    ),
    "a token is doubled": ("per_token", making("per_token", DoublesAToken), "isn't what it gets alone"),
    "a step is over its budget": ("continuous", with_a_token_too_many, "over its budget"),
    "a shared block is written": (
        "continuous",
        making("continuous", WritesWhatIsShared),
        "shared block|into one block",
    ),
    "a seat is lost": ("continuous", making("continuous", LosesASeat), "seats are there|none can run"),
    "a preempted row's tokens change": (
        "continuous",
        making("continuous", ForgetsWhatItSaid),
        "aren't those it was told|isn't what it gets alone",
    ),
    "a sequence ends twice": ("static", making("static", EndsTwice), "after its end"),
    "a claim stays": ("all three", making("static", KeepsItsClaim), "none can run|a claim|is_whole"),
    "the last comes first": ("per_token", making("per_token", TakesTheLastFirst), "sat down before it"),
    "a row is forgotten": ("continuous", making("continuous", ForgetsARow), "seats are there|hasn't ended"),
    "waiting improves nothing": ("continuous", without_ageing, "sat down before it"),
}
