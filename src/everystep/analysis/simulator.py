"""The very policies that the engine drives, on a clock that is a number: what a load would have met.

Owns the order of events: who is in the line before which plan.  It is the order of :class:`everystep.engine.core` and
its worker.  Ignorant of what a step costs (it is told) and of models (a token is a token).

Unless told otherwise the line is as long as it must be, and nobody is turned away for its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise

from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Answer, Outcome
from everystep.analysis.virtual_engine import Coming, Door, Leaving, Life, OnStep, VirtualEngine
from everystep.config import Settings
from everystep.errors import ConfigError, UnsupportedOption
from everystep.sched import BlockPool
from everystep.sched.from_settings import POLICIES, build_lanes
from everystep.types import Policy, StepPlan


@dataclass(frozen=True)
class Machine:
    """What a schedule runs on.  ``step_s`` gives a step's seconds; the rest is the cache's and the client's way."""

    step_s: Callable[[StepPlan], float]
    num_blocks: int
    block_size: int
    max_model_len: int
    submit_s: float = 0.0  # from the client's send to the engine's line
    deliver_s: float = 0.0  # from the end of a step to the client


def simulate(
    load: Load,
    settings: Settings,
    policy: str,
    machine: Machine,
    *,
    aborts: Mapping[int, float] | None = None,
    on_step: OnStep | None = None,
    on_lane: Callable[[Policy], None] | None = None,
    is_line_bounded: bool = False,
) -> Outcome:
    """Run ``load`` through one lane and say what became of it: an answer for every arrival, in its order.

    Every prompt is different, so the prefix cache spares nothing but a preempted sequence's own second reading.  What
    can never fit is answered with an error, its HTTP status first, as the server does.

    ``aborts``: arrivals, by position in the load, whose client leaves, and when the engine hears of it.  ``on_step`` is
    told each step; ``on_lane`` is handed the lane before the first, to be asked why others wait.  With ``step_s`` 1
    and whole numbers as times, times are step numbers: no rounding can change who is in time.  ``is_line_bounded``
    turns away who finds ``settings.max_queue`` sequences or ``max_queue_tokens`` prompt tokens waiting.

    Raises :class:`ConfigError` for a policy that isn't ours, or a load that isn't in order of time, and
    :class:`UnsupportedOption` for settings with deadlines: those are kept by the server's front, which isn't simulated.
    """
    _check(load, settings, policy)
    pool = BlockPool(machine.num_blocks, machine.block_size, prefix_cache=settings.prefix_cache)
    lanes = build_lanes(settings, pool, machine.max_model_len, [policy])
    if on_lane is not None:
        on_lane(lanes[policy])
    door = Door(settings.max_queue, settings.max_queue_tokens) if is_line_bounded else Door()
    engine = VirtualEngine(lanes, machine.step_s, on_step or _nobody_listens, door)
    engine.run(_messages(load, policy, machine.submit_s, aborts or {}))
    pool.check()
    return _outcome(load, engine, machine.deliver_s)


def _check(load: Load, settings: Settings, policy: str) -> None:
    if policy not in POLICIES:
        raise ConfigError(f"policy={policy!r} must be one of {', '.join(POLICIES)}")
    if any(later.at_s < earlier.at_s for earlier, later in pairwise(load)):
        raise ConfigError("a load's arrivals must be in order of time")
    for name in ("queue_timeout", "request_timeout"):
        if (seconds := getattr(settings, name)) is not None:
            raise UnsupportedOption(f"{name}={seconds:g}: deadlines aren't simulated", param=name)


def _messages(load: Load, policy: str, submit_s: float, aborts: Mapping[int, float]) -> Iterable[Coming | Leaving]:
    """Arrivals and departures in order of time; at equal times an arrival goes first."""
    coming = (
        Coming(arrival.at_s + submit_s, index, policy, arrival.prompt_tokens, arrival.output_tokens)
        for index, arrival in enumerate(load)
    )
    leaving = sorted((Leaving(at_s, index) for index, at_s in aborts.items()), key=_at_s)
    return merge(coming, leaving, key=_at_s)


def _at_s(message: Coming | Leaving) -> float:
    return message.at_s


def _nobody_listens(plan: StepPlan, start_s: float, end_s: float) -> None:
    """Where no ``on_step`` was given."""


def _outcome(load: Load, engine: VirtualEngine, deliver_s: float) -> Outcome:
    answers = [_answer(arrival, engine.lives[index], deliver_s) for index, arrival in enumerate(load)]
    wall_s = max((answer.token_times_s[-1] for answer in answers if answer.token_times_s), default=0.0)
    return Outcome(answers, wall_s, engine.seat_steps)


def _answer(arrival: Arrival, life: Life, deliver_s: float) -> Answer:
    times_s = [time_s + deliver_s for time_s in life.token_times_s] if deliver_s else life.token_times_s
    return Answer(arrival, times_s, len(times_s), life.error)
