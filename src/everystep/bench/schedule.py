"""Sending on schedule: each request at its own absolute time, whatever becomes of the ones before.

Owns the load's clock and how late the client was.  A request that is sent late is still measured from when it was due,
and the lag is told beside it.  Ignorant of what is sent.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from everystep.analysis.load import Load

Reply = TypeVar("Reply")
Now = Callable[[], float]  # seconds since the load's start


class Clock(Protocol):
    """Time as the sender sees it."""

    def now_s(self) -> float: ...

    async def sleep_until(self, due_s: float) -> None:
        """Returns at once where ``due_s`` has passed."""


class WallClock:
    """The machine's own."""

    def now_s(self) -> float:
        return time.perf_counter()

    async def sleep_until(self, due_s: float) -> None:
        await asyncio.sleep(max(0.0, due_s - self.now_s()))


@dataclass(frozen=True, slots=True)
class Sent(Generic[Reply]):
    """A load whose every request has ended."""

    replies: Sequence[Reply]  # in order of arrival
    lags_s: tuple[float, ...]
    wall_s: float  # from the load's start until the last request had ended
    cpu_s: float  # of this process meanwhile


async def send_on_schedule(load: Load, send: Callable[[int, Now], Awaitable[Reply]], clock: Clock) -> Sent[Reply]:
    """Call ``send(index, now)`` when each arrival is due; as many at once as the load has open.

    Deadlines are absolute: a late one delays none of those behind it.
    """
    lags_s = [0.0] * len(load)
    with no_collection():
        cpu_start_s, start_s = time.process_time(), clock.now_s()

        def now() -> float:
            return clock.now_s() - start_s

        async def one(index: int) -> Reply:
            lags_s[index] = now() - load[index].at_s
            return await send(index, now)

        async with asyncio.TaskGroup() as group:
            tasks = []
            for index, arrival in enumerate(load):
                if arrival.at_s > now():
                    await clock.sleep_until(start_s + arrival.at_s)
                tasks.append(group.create_task(one(index)))
        return Sent([task.result() for task in tasks], tuple(lags_s), now(), time.process_time() - cpu_start_s)


@contextmanager
def no_collection() -> Iterator[None]:
    """The collector stays out while times are taken: with thousands of blocks in memory it takes a token's time."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
