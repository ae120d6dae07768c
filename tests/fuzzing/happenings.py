"""What may happen to lanes: arrivals, departures, deadlines, clock jumps, steps.

Owns the happenings, and a plain random wanderer among them for thousands of traces.  Ignorant of what is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from everystep.types import FinishReason
from fuzzing.scenes import MAX_PRIORITY, MAX_TOKENS
from fuzzing.stage import Stage

# A few texts that begin alike, so that prefixes are shared, and that part at and beside block borders; two that fit
# into no small cache or into no context.
PROMPTS = [
    (*beginning, *[ending] * length)
    for beginning in ((), (1,) * 4, (1,) * 7, (1,) * 8, (2, 2, 2, 2, 1, 1, 1, 1))
    for ending, length in ((3, 1), (4, 3), (3, 6))
] + [(5,) * 19, (5,) * 43]
FAILURES = [""] * 12 + ["!0", "!2", "?0", "?3"]
REASONS = [FinishReason.ABORTED, FinishReason.TIMEOUT, FinishReason.STOP]
JUMPS_S = [0.0, 0.5, 3.0, 20.0, 1e5]
DEADLINES_S = [0.4, 2.5, 30.0]


class Happenings:
    """Each method is one happening on the stage.  What is ``within`` happens during the next forward pass."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.num_submitted = 0

    def arrive(
        self, lane: int, prompts: list[tuple[int, ...]], priority: int, failure: str, within: bool, **params: int
    ) -> None:
        """A request's prompts arrive together."""
        lanes = self.stage.scene.lanes
        params["min_tokens"] = min(params["min_tokens"], params["max_tokens"])

        def come() -> None:
            for prompt in prompts:
                name = f"{self.num_submitted}{failure}"
                self.num_submitted += 1
                self.stage.submit(name, lanes[lane % len(lanes)], prompt, priority=priority, **params)

        self._happen(come, within)

    def time_passes(self, seconds: float) -> None:
        self.stage.now_s += seconds

    def steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.stage.step()

    def leave(self, name: str, reason: FinishReason, within: bool) -> None:
        self._happen(lambda: self.stage.abort(name, reason), within)

    def leave_again(self, number: int) -> None:
        """News of one who may have ended, or may never have been here."""
        self.stage.abort(str(number))

    def deadline_passes(self, seconds: float, within: bool) -> None:
        """Everybody who has been here that long is out of time, at once."""
        self._happen(lambda: self._expire(seconds), within)

    def _expire(self, seconds: float) -> None:
        for name in self.stage.alive:
            if self.stage.now_s - self.stage.promised[name].submit.arrival_s >= seconds:
                self.stage.abort(name, FinishReason.TIMEOUT)

    def _happen(self, what: Callable[[], None], within: bool) -> None:
        if not within:
            what()
            return
        self.stage.during.append(what)
        if self.stage.step() is None:  # there was no pass for it to happen in
            self.stage.happen_now()


def wander(stage: Stage, random: Random, num_happenings: int) -> None:
    """A random trace to its end."""
    happenings = Happenings(stage)
    for _ in range(num_happenings):
        _wander_on(happenings, random)
    stage.finish()
    stage.close()


def _wander_on(happenings: Happenings, random: Random) -> None:
    alive, within = happenings.stage.alive, random.random() < 0.4
    match random.choices(range(6), (30, 20, 30, 10, 5, 5))[0]:
        case 0:
            happenings.arrive(
                random.randrange(3),
                random.choices(PROMPTS, k=random.randint(1, 3)),
                random.randint(0, MAX_PRIORITY),
                random.choice(FAILURES),
                within,
                max_tokens=random.randint(1, MAX_TOKENS),
                min_tokens=random.randint(0, 4),
                ignore_eos=random.random() < 0.5,
            )
        case 1:
            happenings.time_passes(random.choice(JUMPS_S))
        case 2:
            happenings.steps(random.randint(1, 6))
        case 3 if alive:
            happenings.leave(random.choice(alive), random.choice(REASONS), within)
        case 4 if happenings.num_submitted:
            happenings.leave_again(random.randint(0, happenings.num_submitted))
        case 5 if alive:
            happenings.deadline_passes(random.choice(DEADLINES_S), within)
