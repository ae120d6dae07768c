"""From settings to a core that is ready to step, timed part by part.

Owns the order of the start: open the model, build the runner, size and make the cache, warm up.  Ignorant of who drives
the core afterwards.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from everystep.architecture import Checkpoint
from everystep.checkpoint import open_checkpoint
from everystep.config import Settings
from everystep.engine.core import EngineCore
from everystep.engine.memory import host_cache_bytes, num_kv_blocks
from everystep.engine.recording import make_recorder
from everystep.engine.runners import build_runner, cache_dir, check_settings, choose_runner
from everystep.errors import UnsupportedOption
from everystep.messages import EngineInfo
from everystep.sched import BlockPool
from everystep.sched.from_settings import POLICIES, build_lanes, num_seats
from everystep.types import Runner, StepPlan

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StartUp:
    """Seconds that each part of the start took."""

    parts_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.parts_s[name] = round(time.monotonic() - start, 3)


def build_core(
    settings: Settings,
    *,
    now_s: Callable[[], float],
    drain: Callable[[], None] = lambda: None,
    on_pass: Callable[[StepPlan], None] = lambda plan: None,
    first_step: int = 0,
    runner: Runner | None = None,
    start_up: StartUp | None = None,
    num_blocks: int | None = None,
) -> tuple[EngineCore, EngineInfo]:
    """A warm core and what it is.  ``runner`` and ``num_blocks`` replace what settings and memory would give."""
    start_up = start_up or StartUp()
    check_settings(settings)
    with start_up.part("open model"):
        checkpoint = open_checkpoint(settings.model, cache_dir(settings))
    with start_up.part("build runner"):
        runner = runner or build_runner(settings, checkpoint)
    max_model_len = resolve_max_model_len(settings, checkpoint, runner)
    lanes = getattr(runner, "lanes", POLICIES)
    seats = num_seats(settings, lanes)
    num_blocks = num_blocks or _num_blocks(settings, runner, sum(seats.values()), max_model_len)
    with start_up.part("make KV cache"):
        runner.allocate(num_blocks)
    with start_up.part("warm up"):
        runner.warm_up(max(seats.values()), settings.max_num_batched_tokens)
    pool = BlockPool(num_blocks, runner.block_size, prefix_cache=settings.prefix_cache)
    info = _info(settings, runner, seats, num_blocks, max_model_len, start_up)
    core = EngineCore(
        runner=runner,
        lanes=build_lanes(settings, pool, max_model_len, lanes),
        pool=pool,
        now_s=now_s,
        drain=drain,
        on_pass=on_pass,
        first_step=first_step,
        check_when_idle=settings.log_level == "debug",
        recorder=make_recorder(settings, info, checkpoint, runner.vocab_size, first_step),
    )
    return core, info


def _num_blocks(settings: Settings, runner: Runner, num_seats: int, max_model_len: int) -> int:
    """A runner on a device of its own says what it has left there; of others the host's memory rules."""
    ask_device = getattr(runner, "free_cache_bytes", lambda: None)
    device_bytes = ask_device()
    return num_kv_blocks(
        kv_cache_gib=settings.kv_cache_gib,
        block_bytes=runner.kv_block_bytes,
        block_size=runner.block_size,
        num_seats=num_seats,
        max_model_len=max_model_len,
        budget_bytes=host_cache_bytes() if device_bytes is None else device_bytes,
    )


def _info(
    settings: Settings,
    runner: Runner,
    seats: dict[str, int],
    num_blocks: int,
    max_model_len: int,
    start_up: StartUp,
) -> EngineInfo:
    """Runners of users may have no name, precision or threads to tell."""
    return EngineInfo(
        model=settings.served_name,
        runner=str(getattr(runner, "name", type(runner).__name__)),
        precision=str(getattr(runner, "precision", "none")),
        num_threads=int(getattr(runner, "num_threads", 1)),
        block_size=runner.block_size,
        num_blocks=num_blocks,
        kv_block_bytes=runner.kv_block_bytes,
        max_model_len=max_model_len,
        seats=seats,
        start_up_s=start_up.parts_s,
    )


def resolve_max_model_len(settings: Settings, checkpoint: Checkpoint, runner: Runner | None = None) -> int:
    """Tokens of context a sequence may use: the setting, at most what the model was made for, or the runner computes.

    A runner may know a lesser bound, ``max_context_len``: where a model's rotary frequencies follow the longest text of
    a pass, a row's tokens would depend on its neighbours beyond it.
    """
    limit = min(checkpoint.outline.max_context_len, getattr(runner, "max_context_len", sys.maxsize))
    asked = settings.max_model_len
    if asked is not None and asked > limit:
        raise UnsupportedOption(
            f"max_model_len={asked} is over the {limit} tokens that the model was made for", param="max_model_len"
        )
    return asked or limit


def check_model(settings: Settings, checkpoint: Checkpoint) -> None:
    """What a server should know before it starts a worker: :class:`ModelError` or :class:`UnsupportedOption`."""
    checkpoint.check_tokenizer()  # before anything is built for a model that nobody could talk to
    choose_runner(settings, checkpoint)
    resolve_max_model_len(settings, checkpoint)
