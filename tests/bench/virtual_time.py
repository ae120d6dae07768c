"""A clock that nobody waits for, and servers that answer on it.

Time moves only when a sleeper says so: everybody who sleeps is woken in the order of what they wait for.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import httpx


class VirtualClock:
    """Sleepers wake in order.  ``overshoot_s``: by how much every sleep is too long, as on a busy machine."""

    def __init__(self, overshoot_s: float = 0.0) -> None:
        self._now_s = 1000.0  # any: loads count from their own start
        self._overshoot_s = overshoot_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._driver: asyncio.Task[None] | None = None

    def now_s(self) -> float:
        return self._now_s

    async def sleep_until(self, due_s: float) -> None:
        await self._sleep_until(due_s + self._overshoot_s)

    async def server_sleeps(self, duration_s: float) -> None:
        await self._sleep_until(self._now_s + duration_s)

    async def _sleep_until(self, due_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due_s, next(self._numbers), future))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        await future

    async def _drive(self) -> None:
        """Wake one after another; whoever can run meanwhile runs first, and may want to be woken sooner."""
        while self._sleepers:
            for _ in range(SETTLED):
                await asyncio.sleep(0)
            due_s, _, future = heapq.heappop(self._sleepers)
            self._now_s = max(self._now_s, due_s)
            if not future.done():
                future.set_result(None)
            await asyncio.sleep(0)


SETTLED = 50  # turns of the loop, more than any chain of callbacks in these tests is long


class Blocks(httpx.AsyncByteStream):
    """Blocks of an answer, each after a while on the clock."""

    def __init__(self, clock: VirtualClock, blocks: list[tuple[float, bytes]]) -> None:
        self._clock = clock
        self._blocks = blocks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for after_s, block in self._blocks:
            await self._clock.server_sleeps(after_s)
            yield block


class StreamingServer(httpx.AsyncBaseTransport):
    """Answers each completion with a first token after ``first_s`` and another every ``gap_s``, all at once."""

    def __init__(self, clock: VirtualClock, first_s: float = 1.0, gap_s: float = 0.5) -> None:
        self.clock = clock
        self.bodies: list[dict[str, Any]] = []
        self.sent_at_s: list[float] = []
        self.answer: Callable[[dict[str, Any]], httpx.Response] = lambda body: self.stream(body["max_tokens"])
        self._first_s = first_s
        self._gap_s = gap_s

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        self.bodies.append(body)
        self.sent_at_s.append(self.clock.now_s())
        return self.answer(body)

    def stream(self, num_tokens: int) -> httpx.Response:
        blocks = [
            (self._gap_s if number else self._first_s, piece("length" if number == num_tokens - 1 else None))
            for number in range(num_tokens)
        ]
        return self.stream_of([*blocks, (0.0, usage(3, num_tokens) + b"data: [DONE]\n\n")])

    def stream_of(self, blocks: list[tuple[float, bytes]]) -> httpx.Response:
        return httpx.Response(200, stream=Blocks(self.clock, blocks))


def piece(finish: str | None = None, text: str = "x") -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": None})


def usage(num_prompt_tokens: int, num_tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": num_prompt_tokens, "completion_tokens": num_tokens}})


def event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
