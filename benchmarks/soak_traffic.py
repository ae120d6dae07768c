"""When everything comes: arrivals at random, bursts above capacity, misbehaving clients, controls, harm.

Owns the times and the mix, and the wait for what was sent.  Ignorant of what each of them is.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from soak_asking import Asking
from soak_bad_input import BadInput
from soak_controls import Controls
from soak_harm import Harmer
from soak_leavers import Leavers
from soak_requests import Draw

FAULT_SHARE, BAD_SHARE = 0.2, 0.2  # of arrivals
BURST_EVERY_S = (15.0, 30.0)
CONTROL_EVERY_S = 1.5
FIRST_HARM_S = 8.0
PROGRESS_S = 60.0
HARM_PART, SHORT_HARM_PART = 0.5, 0.9  # of the time
STEADY_S = 75.0  # a worker that dies within a minute of service counts as a crash loop
SHORT_S, SHORT_HARMS, SHORT_PAUSES = 300.0, 4, 20  # a short soak can't wait for that, and stays below the loop's bound


@dataclass
class Traffic:
    """All that is sent for ``span_s`` seconds."""

    asking: Asking
    draw: Draw
    leavers: Leavers
    bad: BadInput
    controls: Controls
    harmer: Harmer | None
    rng: random.Random
    rate: float  # arrivals a second, of every kind
    most_open: int  # outside of bursts: arrivals above it are left out, so that the soak stays gentle
    burst: int
    span_s: float
    num_left_out: int = 0
    num_bursts: int = 0
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _turn: int = 0

    async def run(self) -> None:
        """Send; then wait until each has had its end, which its own deadline bounds."""
        clocks = [self._arrivals(), self._bursts(), self._controls(), self._progress()]
        if self.harmer is not None:
            clocks.append(self._harms(self.harmer))
        try:
            async with asyncio.TaskGroup() as group:
                for clock in clocks:
                    group.create_task(clock)
            while self._tasks:
                await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _arrivals(self) -> None:
        """Open loop: nobody waits for an answer before the next comes."""
        ends_s = time.monotonic() + self.span_s
        while time.monotonic() < ends_s:
            await asyncio.sleep(self.rng.expovariate(self.rate))
            share = self.rng.random()
            if self.asking.ledger.num_computed >= self.most_open:
                self.num_left_out += 1
            elif share < FAULT_SHARE:
                self._spawn(self.leavers.run(self._next_fault()))
            elif share < FAULT_SHARE + BAD_SHARE:
                self._spawn(self.bad.send_one())
            else:
                self._spawn(self.controls.ask(self.draw.ask()))

    def _next_fault(self) -> str:
        """Each kind in turn, so that a short soak has them all."""
        kinds = list(self.leavers.kinds)
        self._turn += 1
        return kinds[self._turn % len(kinds)]

    async def _bursts(self) -> None:
        ends_s = time.monotonic() + self.span_s
        while (pause_s := self.rng.uniform(*BURST_EVERY_S)) and time.monotonic() + pause_s < ends_s:
            await asyncio.sleep(pause_s)
            self._burst()
            self._spawn(self.leavers.run("leaves in the line or while computed"))

    def _burst(self) -> None:
        self.num_bursts += 1
        for _ in range(self.burst):
            self._spawn(self.controls.ask(self.draw.ask()))

    async def _controls(self) -> None:
        ends_s = time.monotonic() + self.span_s
        while time.monotonic() < ends_s:
            await asyncio.sleep(CONTROL_EVERY_S)
            self._spawn(self.controls.compare_one())

    async def _harms(self, harmer: Harmer) -> None:
        """Each amid a burst.  One worker lives through the last part, so that its memory can be followed."""
        is_short = self.span_s < SHORT_S
        pause_s = self.span_s / SHORT_PAUSES if is_short else STEADY_S
        ends_s = time.monotonic() + self.span_s * (SHORT_HARM_PART if is_short else HARM_PART)
        await asyncio.sleep(min(FIRST_HARM_S, pause_s))
        while time.monotonic() < ends_s and not (is_short and len(harmer.done) >= SHORT_HARMS):
            self._burst()
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            await harmer.hurt()
            await asyncio.sleep(pause_s * self.rng.uniform(1.0, 1.2))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        """A client that fails in a way nobody foresaw is a finding too, and no end of the others."""
        try:
            await work
        except Exception as error:
            words = "".join(traceback.format_exception(error))
            self.asking.ledger.violate("clients that failed themselves", words[-1000:])

    async def _progress(self) -> None:
        """A line a minute, for whoever watches."""
        began_s, ledger = time.monotonic(), self.asking.ledger
        while (gone_s := time.monotonic() - began_s) < self.span_s:
            await asyncio.sleep(min(PROGRESS_S, self.span_s - gone_s))
            found = ", ".join(f"{line}: {num}" for line, num in ledger.num_violations.items()) or "all in order"
            print(f"{gone_s / 60:5.1f} min: {ledger.num_sent} sent, {found}", file=sys.stderr, flush=True)
