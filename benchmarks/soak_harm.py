"""Kills and stops the worker, and takes the time until the server serves again.

Owns the kinds of harm and what each must lead to.  Ignorant of traffic.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
from soak_ledger import Ledger
from soak_server import Server

ASK_S = 0.02
SETTLE_S = 2.0  # after it is ready again, until steps are due
BRIEF_SHARE = 0.3  # of the stall deadline: a stop that the worker must survive
KINDS = ("SIGKILL", "SIGSTOP, never continued", "SIGKILL, and again while it starts", "SIGSTOP, briefly")


@dataclass(frozen=True)
class Harm:
    """One harm done.  Times in seconds from the first signal; ``None`` where it wasn't seen."""

    kind: str
    at_s: float
    unready_s: float | None  # until /health/ready said 503
    ready_s: float | None  # until it said 200 again
    last_told_s: float | None  # until the last client whose request died was told
    num_died: int


@dataclass
class Harmer:
    """One harm at a time."""

    server: Server
    ledger: Ledger
    rng: random.Random
    stall_timeout_s: float
    deadline_s: float  # for readiness
    done: list[Harm] = field(default_factory=list)
    num_ends: int = 0  # of workers that were ended, in all
    is_hurt: bool = False
    _turn: int = 0

    async def hurt(self) -> None:
        """The next kind of harm, until the server is well again."""
        kind = KINDS[self._turn % len(KINDS)]
        self._turn += 1
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            KINDS[0]: self._kill,
            KINDS[1]: self._stop,
            KINDS[2]: self._kill_twice,
            KINDS[3]: self._stop_briefly,
        }
        self.is_hurt = True
        began_s, had_died = time.monotonic(), len(self.ledger.died_at_s)
        await acts[kind]()
        is_fatal = kind != KINDS[3]
        unready_s = await self._until(False, began_s) if is_fatal else None
        ready_s = await self._until(True, began_s)
        if ready_s is None or (is_fatal and unready_s is None):
            self.ledger.violate("a worker that didn't come back", f"{kind}: unready {unready_s}, ready {ready_s}")
        await asyncio.sleep(SETTLE_S)
        self.is_hurt = False
        died = self.ledger.died_at_s[had_died:]
        told_s = max(died) - began_s if died else None
        self.done.append(Harm(kind, began_s, unready_s, ready_s, told_s, len(died)))

    async def _kill(self) -> None:
        self.num_ends += self.server.signal_worker(signal.SIGKILL)

    async def _stop(self) -> None:
        """The server must notice, and end it."""
        self.num_ends += self.server.signal_worker(signal.SIGSTOP)

    async def _kill_twice(self) -> None:
        first = self.server.worker_pid()
        await self._kill()
        for _ in range(int(self.deadline_s / ASK_S)):
            if self.server.worker_pid() not in (None, first):
                await asyncio.sleep(self.rng.uniform(0.0, 0.3))
                await self._kill()
                return
            await asyncio.sleep(ASK_S)

    async def _stop_briefly(self) -> None:
        if self.server.signal_worker(signal.SIGSTOP):
            await asyncio.sleep(BRIEF_SHARE * self.stall_timeout_s)
            self.server.signal_worker(signal.SIGCONT)

    async def _until(self, is_ready: bool, since_s: float) -> float | None:
        """Seconds since the harm until readiness is so; ``None`` where it never comes."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=self.deadline_s, trust_env=False) as http:
            while time.monotonic() - since_s < self.deadline_s:
                if ((await http.get("/health/ready")).status_code == httpx.codes.OK) is is_ready:
                    return time.monotonic() - since_s
                await asyncio.sleep(ASK_S)
        return None
