"""A core that is recorded while random traffic goes through it: what the replay's tests are made of.

The traffic has all that a schedule may depend on: three lanes on scarce blocks, shared beginnings, priorities,
refusals, departures before and during a pass, failing rows and passes, a static lane that waits for company.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from everystep.config import Settings
from everystep.engine.core import EngineCore
from everystep.messages import Abort, Submit
from everystep.observe.schedule import SCHEMA, Header
from everystep.observe.schedule_writer import ScheduleWriter
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.sched.from_settings import build_lanes, num_seats
from everystep.types import FinishReason, StepPlan, StepResult

BLOCK_SIZE = 4
VOCAB = 50
EOS = 0
MAX_MODEL_LEN = 40
SETTINGS = {
    "static_batch_size": 3,
    "static_max_wait": 2.0,
    "per_token_batch_size": 2,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 7,
    "ageing_s": 5.0,
}
LANES = ("static", "per_token", "continuous")
REASONS = (FinishReason.ABORTED, FinishReason.STOP, FinishReason.TIMEOUT)


class BreakingRunner(FakeRunner):
    """Some passes raise."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(vocab_size=VOCAB, block_size=BLOCK_SIZE, eos_token_id=EOS, eos_rate=0.05)
        self._rng = rng

    def run(self, plan: StepPlan) -> StepResult:
        result = super().run(plan)
        if self._rng.random() < 0.02:
            raise RuntimeError("the kernel is broken")
        return result


def whole_runner() -> FakeRunner:
    """A runner that never fails, so that it can be asked for the same tokens again."""
    return FakeRunner(vocab_size=VOCAB, block_size=BLOCK_SIZE, eos_token_id=EOS, eos_rate=0.05)


def header_of(num_blocks: int, **settings: object) -> Header:
    """What a server with these settings would have written."""
    checked = Settings.model_validate(settings)
    return Header(
        schema=SCHEMA,
        everystep="test",
        settings=settings,
        content_key="",
        runner="fake",
        precision="none",
        num_threads=1,
        cpu="",
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_model_len=MAX_MODEL_LEN,
        vocab_size=VOCAB,
        seats=num_seats(checked),
        first_step=0,
    )


def core_of(
    header: Header, runner: FakeRunner, now_s: Callable[[], float], drain: Callable[[], None], path: Path | None = None
) -> EngineCore:
    """A core as the header says, recorded to ``path`` if there is one."""
    settings = Settings.model_validate(header.settings)
    runner.allocate(header.num_blocks)
    pool = BlockPool(header.num_blocks, header.block_size, prefix_cache=settings.prefix_cache)
    recorder = {} if path is None else {"recorder": ScheduleWriter(path, header)}
    return EngineCore(
        runner=runner,
        lanes=build_lanes(settings, pool, header.max_model_len),
        pool=pool,
        now_s=now_s,
        drain=drain,
        first_step=header.first_step,
        **recorder,
    )


class Traffic:
    """Random traffic through a recorded core."""

    def __init__(self, rng: random.Random, path: Path, runner: FakeRunner, *, num_blocks: int) -> None:
        self.rng = rng
        self.time_s = 0.0
        self.names: list[str] = []
        self.core = core_of(header_of(num_blocks, **SETTINGS), runner, self.now_s, self.drain, path)

    def now_s(self) -> float:
        """A clock that is never twice the same."""
        self.time_s += self.rng.random() * 0.01
        return self.time_s

    def drain(self) -> None:
        if self.rng.random() < 0.3:
            self.message()

    def run(self, num_turns: int) -> None:
        """So many turns, and then until nobody is left."""
        for _ in range(num_turns):
            for _ in range(self.rng.choice((0, 0, 1, 3))):
                self.message()
            self.time_s += self.rng.choice((0.0, 0.0, 0.3, 1.5))
            self.core.step()
            self.core.take_events()
        while self.core.has_work():
            self.time_s += 0.5
            self.core.step()
        self.core.close()

    def message(self) -> None:
        if self.names and self.rng.random() < 0.25:
            name = self.rng.choice((*self.names[-8:], "a stranger"))
            self.core.abort(Abort(name, self.rng.choice(REASONS)))
        else:
            self.submit()

    def submit(self) -> None:
        rng, name = self.rng, f"s{len(self.names)}"
        self.names.append(name)
        beginning = rng.choice(([], [1] * 4, [1] * 8, [2] * 5))
        prompt = [*beginning, *(rng.randrange(1, VOCAB) for _ in range(rng.choice((1, 3, 6))))]
        max_tokens = rng.choice((1, 4, 9, 14, 60))  # 60 outgrow the context: refused
        ignore_eos, temperature = rng.random() < 0.5, rng.choice((0.0, 0.7))
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, temperature=temperature)
        arrival_s = self.time_s - rng.choice((0.0, 0.4))
        lane, priority, seed = rng.choice(LANES), rng.choice((0, 0, 3)), rng.getrandbits(64)
        self.core.submit(Submit(name, name, lane, tuple(prompt), params, seed, (EOS,), priority, arrival_s))
