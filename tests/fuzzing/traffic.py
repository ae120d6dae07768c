"""Random traffic on a stage: a Hypothesis state machine that shrinks what it finds, and a plain wanderer for the many.

Owns how either is run and where a failing trace goes.  Ignorant of what may happen and of what is promised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from everystep.types import FinishReason
from fuzzing.happenings import DEADLINES_S, FAILURES, JUMPS_S, PROMPTS, REASONS, Happenings, wander
from fuzzing.scenes import MAX_PRIORITY, MAX_TOKENS, MakeLanes, Scene, right_lanes
from fuzzing.stage import Stage

BLOCKS = (4, 10)


@dataclass(frozen=True)
class Play:
    """Where traffic is played.  A trace that fails is saved as ``keep_as``."""

    scene: Scene
    folder: Path
    keep_as: Path
    make_lanes: MakeLanes = right_lanes

    def stage(self, num_blocks: int, prefix_cache: bool) -> Stage:
        changed = self.scene.settings.model_copy(update={"prefix_cache": prefix_cache})
        scene = replace(self.scene, settings=changed, num_blocks=num_blocks)
        return Stage(scene, self.folder / "being played", self.keep_as, self.make_lanes)


class Traffic(RuleBasedStateMachine):
    """Whatever may happen, in any order; at the end everything runs out."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self.play = play
        self.happenings: Happenings | None = None

    @initialize(num_blocks=st.integers(*BLOCKS), prefix_cache=st.booleans())
    def start(self, num_blocks: int, prefix_cache: bool) -> None:
        self.happenings = Happenings(self.play.stage(num_blocks, prefix_cache))

    @rule(
        lane=st.integers(0, 2),
        prompts=st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=3),
        max_tokens=st.integers(1, MAX_TOKENS),
        min_tokens=st.integers(0, 4),
        ignore_eos=st.booleans(),
        priority=st.integers(0, MAX_PRIORITY),
        failure=st.sampled_from(FAILURES),
        within=st.booleans(),
    )
    def arrive(
        self, lane: int, prompts: list[tuple[int, ...]], priority: int, failure: str, within: bool, **params: int
    ) -> None:
        self.ready.arrive(lane, prompts, priority, failure, within, **params)

    @rule(seconds=st.sampled_from(JUMPS_S))
    def time_passes(self, seconds: float) -> None:
        self.ready.time_passes(seconds)

    @rule(num_steps=st.integers(1, 6))
    def steps(self, num_steps: int) -> None:
        self.ready.steps(num_steps)

    @precondition(lambda self: self.ready.stage.alive)
    @rule(data=st.data(), reason=st.sampled_from(REASONS), within=st.booleans())
    def leave(self, data: st.DataObject, reason: FinishReason, within: bool) -> None:
        self.ready.leave(data.draw(st.sampled_from(self.ready.stage.alive)), reason, within)

    @precondition(lambda self: self.ready.num_submitted)
    @rule(data=st.data())
    def leave_again(self, data: st.DataObject) -> None:
        self.ready.leave_again(data.draw(st.integers(0, self.ready.num_submitted)))

    @precondition(lambda self: self.ready.stage.alive)
    @rule(seconds=st.sampled_from(DEADLINES_S), within=st.booleans())
    def deadline_passes(self, seconds: float, within: bool) -> None:
        self.ready.deadline_passes(seconds, within)

    @property
    def ready(self) -> Happenings:
        assert self.happenings is not None
        return self.happenings

    def teardown(self) -> None:
        if self.happenings is not None:
            self.happenings.stage.finish()
            self.happenings.stage.close()


def explore(play: Play, max_examples: int) -> None:
    """Traffic as Hypothesis finds it.  Raises what was violated; the trace saved is the one it was shrunk to."""

    class TrafficOfThisPlay(Traffic):
        def __init__(self) -> None:
            super().__init__(play)

    with quiet():
        run_state_machine_as_test(
            TrafficOfThisPlay,
            settings=settings(
                max_examples=max_examples,
                stateful_step_count=30,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=[HealthCheck.too_slow],
                phases=(Phase.reuse, Phase.generate, Phase.shrink),
            ),
        )


def roam(play: Play, seeds: range, num_happenings: int = 30) -> int:
    """A plain random trace for each seed.  Raises what was violated, naming the seed; returns the steps made."""
    num_steps = 0
    with quiet():
        for seed in seeds:
            random = Random(seed)
            stage = play.stage(random.randint(*BLOCKS), random.random() < 0.5)
            try:
                wander(stage, random, num_happenings)
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
            num_steps += stage.num_steps
    return num_steps


@contextmanager
def quiet() -> Iterator[None]:
    """Broken passes are logged with their traceback, which thousands of them needn't be."""
    log = logging.getLogger("everystep.engine.passes")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled
