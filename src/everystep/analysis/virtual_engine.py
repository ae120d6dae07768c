"""The engine's loop on a clock that is a number.

Owns the order drain → plan → pass → drain → apply, which is that of ``engine/core.py`` and ``engine/worker.py``: who
came during a pass is in the line before the next plan, and a token drawn for somebody who left meanwhile is nobody's.
Drives several lanes in turn, as the engine does.  Ignorant of what a pass costs and of latencies.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import cast

from everystep.errors import EverystepError, InvalidParameter, QueueFull, http_status
from everystep.sampling_params import SamplingParams
from everystep.sched.turns import Turns
from everystep.types import Policy, SampledToken, Sequence, StepPlan, StepResult

OnStep = Callable[[StepPlan, float, float], None]
"""Told each step as it starts, before its effects: the plan, its start and its end in seconds."""

TOKEN = SampledToken(0)  # which token is drawn changes nothing
TOKEN_BYTES = 4  # an array's "I"


@dataclass(frozen=True, slots=True)
class Coming:
    """A sequence that reaches its lane's line at ``at_s``."""

    at_s: float
    index: int  # the caller's name for it
    policy: str
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """The engine hears at ``at_s`` that the sequence's client is gone."""

    at_s: float
    index: int


@dataclass(slots=True)
class Life:
    """What became of one sequence: when its tokens were drawn, and what went wrong."""

    token_times_s: list[float] = field(default_factory=list)
    error: str | None = None


class Door:
    """Who waits for a first seat, over all lanes, and whether one more may; the same rule as ``engine/door.py``.

    A start is heard of when its step ends: who comes during that step still finds the other in line.
    """

    def __init__(self, max_sequences: float = inf, max_tokens: float = inf) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._waiting: dict[str, int] = {}  # sequence id → prompt tokens
        self._num_tokens = 0

    def enter(self, sequence_id: str, num_tokens: int) -> None:
        """Raises :class:`QueueFull` where the line is at its bound."""
        if len(self._waiting) + 1 > self._max_sequences:
            raise QueueFull(f"{len(self._waiting)} sequences wait; the line holds {self._max_sequences} (--max-queue)")
        if self._num_tokens + num_tokens > self._max_tokens:
            raise QueueFull(
                f"{self._num_tokens} prompt tokens wait; the line holds {self._max_tokens} (--max-queue-tokens)"
            )
        self._waiting[sequence_id] = num_tokens
        self._num_tokens += num_tokens

    def leave(self, sequence_id: str) -> None:
        """Got a seat, or is gone.  One that got its seat earlier isn't here: no error."""
        self._num_tokens -= self._waiting.pop(sequence_id, 0)


class VirtualEngine:
    """Several lanes on one machine.  ``lives`` and ``seat_steps`` are what a run leaves behind."""

    def __init__(
        self,
        lanes: Mapping[str, Policy],
        step_s: Callable[[StepPlan], float],
        on_step: OnStep,
        door: Door | None = None,
    ) -> None:
        self.lives: dict[int, Life] = {}
        self.seat_steps = {"working": 0, "held": 0, "empty": 0}
        self._turns = Turns(lanes)
        self._door = door or Door()
        self._step_s = step_s
        self._on_step = on_step
        self._inbox: deque[Coming | Leaving] = deque()
        self._drawn: dict[str, SampledToken] = {}  # everybody in a lane → their next token, always the same one
        self._times_s: dict[str, list[float]] = {}  # the same → their life's times
        self._result = StepResult(self._drawn)
        self._num_arrivals = 0

    def run(self, messages: Iterable[Coming | Leaving]) -> None:
        """Take in ``messages``, in order of time, and step until everybody ended."""
        self._inbox.extend(messages)
        now_s = 0.0
        while True:
            self._drain(now_s)
            lane, plan = self._turns.next_plan(now_s)
            if lane is not None:
                now_s = self._step(lane, plan, now_s)
            elif (next_s := self._next_s()) is not None:
                now_s = next_s
            else:
                break
        assert not self._turns.has_work(), "sequences wait, nobody can run, and nobody will come"

    def _step(self, lane: Policy, plan: StepPlan, start_s: float) -> float:
        """One forward pass; its end."""
        end_s = start_s + self._step_s(plan)
        self._count_seats(lane, plan)
        self._on_step(plan, start_s, end_s)
        self._drain(end_s)
        for sequence_id in lane.last_started:
            self._door.leave(sequence_id)
        times_s = self._times_s
        for event in lane.apply(plan, self._result):
            times_s[event.sequence_id].append(end_s)
            if event.finish_reason is not None:
                self._forget(event.sequence_id)
        return end_s

    def _count_seats(self, lane: Policy, plan: StepPlan) -> None:
        num_working, num_held = len(plan.rows), len(plan.held)
        self.seat_steps["working"] += num_working
        self.seat_steps["held"] += num_held
        self.seat_steps["empty"] += lane.num_seats - num_working - num_held

    def _next_s(self) -> float | None:
        """When something can change while nobody runs: a message, or a lane that has waited enough for company."""
        ready_s = self._turns.next_ready_s()
        if not self._inbox:
            return ready_s
        message_s = self._inbox[0].at_s
        return message_s if ready_s is None else min(message_s, ready_s)

    def _drain(self, now_s: float) -> None:
        """Take in what has come by now."""
        while self._inbox and self._inbox[0].at_s <= now_s:
            message = self._inbox.popleft()
            if isinstance(message, Coming):
                self._submit(message)
            else:
                self._abort(message)

    def _submit(self, coming: Coming) -> None:
        life = self.lives[coming.index] = Life()
        sequence = _sequence(coming, self._num_arrivals)
        self._num_arrivals += 1
        try:
            _check_output(coming)
            self._door.enter(sequence.sequence_id, coming.prompt_tokens)
            self._turns.lanes[coming.policy].add(sequence)
        except EverystepError as error:
            self._door.leave(sequence.sequence_id)
            life.error = f"{http_status(error)}: {error.message}"  # as a client of the server would note it
            return
        self._drawn[sequence.sequence_id] = TOKEN
        self._times_s[sequence.sequence_id] = life.token_times_s

    def _abort(self, leaving: Leaving) -> None:
        """Who isn't here (any more) can't leave: no error, as in the engine."""
        sequence_id = str(leaving.index)
        if any(lane.abort(sequence_id) for lane in self._turns.lanes.values()):
            self.lives[leaving.index].error = "aborted"
            self._door.leave(sequence_id)
            self._forget(sequence_id)

    def _forget(self, sequence_id: str) -> None:
        del self._drawn[sequence_id], self._times_s[sequence_id]


def _check_output(coming: Coming) -> None:
    """The server's door says this; the lanes' own refusals come from the lanes."""
    if coming.output_tokens < 1:
        raise InvalidParameter(f"max_tokens={coming.output_tokens} generates nothing; at least 1 is needed")


def _sequence(coming: Coming, arrival_index: int) -> Sequence:
    name = str(coming.index)
    return Sequence(
        sequence_id=name,
        request_id=name,
        policy=coming.policy,
        token_ids=_prompt(coming.index, coming.prompt_tokens),
        num_prompt_tokens=coming.prompt_tokens,
        params=_params(coming.output_tokens),
        seed=0,
        eos_token_ids=frozenset(),
        arrival_s=coming.at_s,
        arrival_index=arrival_index,
    )


def _prompt(index: int, num_tokens: int) -> list[int]:
    """A prompt like nobody else's: its first token differs.

    An array of four bytes a token, where a list takes eight; lanes ask its length, a slice, and append.
    """
    token_ids = array("I", bytes(TOKEN_BYTES * num_tokens))
    if num_tokens:
        token_ids[0] = index
    return cast("list[int]", token_ids)


@lru_cache(maxsize=4096)
def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)
