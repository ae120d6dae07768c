"""Who serves which lane: our own worker, vLLM, or both side by side.

Owns the choice from the settings, the way from a lane to who serves it, and what is said of lanes that aren't ready.
Ignorant of requests.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Protocol

from everystep.architecture import Checkpoint
from everystep.config import Settings
from everystep.engine.client.patience import USUAL, Patience
from everystep.engine.client.supervisor import Supervisor
from everystep.engine.codec import FromWorker, ToWorker
from everystep.engine.door import check_lane
from everystep.engine.handle import Spawn
from everystep.engine.runners import OWN_LANES
from everystep.engine.vllm.host_args import LANE as VLLM
from everystep.engine.vllm.launch import is_vllm_on, spawn_vllm
from everystep.messages import EngineInfo, EngineStatus
from everystep.sched.from_settings import POLICIES
from everystep.text import Tokenizer


class Backend(Protocol):
    """What serves some lanes behind ``submit / abort / events``."""

    @property
    def info(self) -> EngineInfo | None:
        """What it is; ``None`` before it was ready for the first time."""

    @property
    def last_words(self) -> str:
        """Why it can't serve, in words."""

    @property
    def settled(self) -> asyncio.Event:
        """Set when it is ready, or has given up."""

    @property
    def given_up(self) -> asyncio.Event:
        """Set when it will never serve again."""

    @property
    def is_spawning(self) -> bool:
        """Whether a thread is at starting it: nothing can cut that short, not even :meth:`stop`."""

    def start(self, after: asyncio.Event | None = None) -> None:
        """Begin to become ready, once ``after`` is set."""

    async def stop(self) -> None:
        """End it, asking first."""

    def kill(self) -> None:
        """End it, now."""

    def send(self, message: ToWorker) -> None:
        """Queue a message; dropped where nobody is there to take it."""

    def status(self, *, is_draining: bool, has_tokenizer: bool) -> EngineStatus:
        """Whether it would serve a request sent now."""

    @property
    def worker_pid(self) -> int | None:
        """The process it runs in, if it has one here."""


class Hooks(Protocol):
    """Who is told what backends say."""

    def on_message(self, message: FromWorker) -> None: ...

    def on_death(self, lanes: tuple[str, ...], words: str) -> None: ...

    def on_restart(self) -> None: ...

    def has_work(self, lanes: tuple[str, ...]) -> bool: ...

    def next_step(self) -> int: ...


def lanes_of(settings: Settings) -> tuple[str, ...]:
    """The lanes that a server with these settings has, its own first."""
    own = OWN_LANES.get(settings.runner, POLICIES)
    return (*own, VLLM) if is_vllm_on(settings) and VLLM not in own else own


class Backends:
    """All engines of one server.  The first is the one that readiness is about."""

    def __init__(
        self,
        settings: Settings,
        spawn: Spawn,
        checkpoint: Checkpoint,
        hooks: Hooks,
        epoch_s: float,
        patience: Patience = USUAL,
    ) -> None:
        lanes = lanes_of(settings)
        own = tuple(lane for lane in lanes if lane != VLLM)
        served: dict[tuple[str, ...], Backend] = {}
        if own:
            served[own] = _supervisor(settings, spawn, own, hooks, epoch_s, patience)
        if VLLM in lanes:
            served[(VLLM,)] = _vllm(settings, checkpoint, hooks, epoch_s, patience)
        self.all = tuple(served.values())
        self.first = self.all[0]
        self._by_lane: Mapping[str, Backend] = {lane: one for group, one in served.items() for lane in group}

    @property
    def lanes(self) -> tuple[str, ...]:
        """Those there are.  Which of its own a worker serves is certain when it is ready."""
        return tuple(lane for lane, one in self._by_lane.items() if one.info is None or lane in one.info.seats)

    def of(self, lane: str) -> Backend:
        """Raises :class:`InvalidParameter` for a lane that this server hasn't."""
        check_lane(lane, self.lanes)
        return self._by_lane[lane]

    def send(self, lane: str, message: ToWorker) -> None:
        self._by_lane[lane].send(message)

    def status(self, *, is_draining: bool, has_tokenizer: bool) -> EngineStatus:
        """The first one's, with a word for each lane where there are others."""
        status = self.first.status(is_draining=is_draining, has_tokenizer=has_tokenizer)
        if len(self.all) == 1:
            return status
        words = {
            lane: self._by_lane[lane].status(is_draining=is_draining, has_tokenizer=has_tokenizer).reason or "ready"
            for lane in self.lanes
        }
        return EngineStatus(status.is_live, status.is_ready, status.reason, status.info, words)

    def start(self) -> None:
        """vLLM's start is long and takes every core: it begins when our own lanes are ready, or never will be."""
        first, *others = self.all
        first.start()
        for one in others:
            one.start(after=first.settled)

    @property
    def is_spawning(self) -> bool:
        return any(one.is_spawning for one in self.all)

    async def stop(self) -> None:
        await asyncio.gather(*(one.stop() for one in self.all))

    def kill(self) -> None:
        for one in self.all:
            one.kill()


def _supervisor(
    settings: Settings, spawn: Spawn, lanes: tuple[str, ...], hooks: Hooks, epoch_s: float, patience: Patience
) -> Supervisor:
    return Supervisor(
        settings,
        spawn,
        epoch_s=epoch_s,
        next_step=hooks.next_step,
        on_message=hooks.on_message,
        on_death=functools.partial(hooks.on_death, lanes),
        on_restart=hooks.on_restart,
        has_work=functools.partial(hooks.has_work, lanes),
        is_first=True,
        patience=patience,
    )


def _vllm(settings: Settings, checkpoint: Checkpoint, hooks: Hooks, epoch_s: float, patience: Patience) -> Backend:
    if settings.vllm_url is not None:
        from everystep.engine.vllm.remote import RemoteVllm

        make_tokenizer = functools.partial(Tokenizer, checkpoint.tokenizer)
        return RemoteVllm(settings, make_tokenizer, epoch_s=epoch_s, on_message=hooks.on_message)
    return Supervisor(
        settings,
        functools.partial(spawn_vllm, checkpoint=checkpoint),
        epoch_s=epoch_s,
        next_step=hooks.next_step,
        on_message=hooks.on_message,
        on_death=functools.partial(hooks.on_death, (VLLM,)),
        on_restart=hooks.on_restart,
        who="vLLM",
        is_first=settings.runner == "vllm",
        patience=patience,
    )
