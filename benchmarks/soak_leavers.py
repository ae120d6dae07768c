"""Clients that misbehave: they leave at every moment, read or send too slowly, sit idle, pipeline.

Owns one function for each kind, and what must come of it.  Ignorant of when and how often they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from soak_ledger import End, Entry, Ledger
from soak_requests import Ask, Draw
from soak_server import Server
from soak_wire import Wire, connected, request_bytes

NUM_IDLE, IDLE_S = 60, 8.0
GOES_ON = 64  # tokens of a stream that is left
WIDE_N, WIDE_LOGPROBS = 4, 5  # of a stream that fills every buffer on its way
FREED_ASK_S = 0.1
SEND_PAUSE_S = 0.05
DROP_MARGIN_S = 3.0
MOST_BUFFERED = 16 * 2**20  # by the kernel, on both sides, and by us
WATCH_S = 5.0
STEP_STREAMS = ("/steps/stream",) * 4 + ("/steps/stream?since=-1",)
GONE = (ConnectionError, EOFError, asyncio.IncompleteReadError)


@dataclass
class Leavers:
    """Clients of one server."""

    server: Server
    ledger: Ledger
    draw: Draw
    rng: random.Random
    deadline_s: float
    client_timeout_s: float  # of the server: how slow a client may be
    max_freed_s: float = 0.0  # from a client's leaving to its request's end, as /requests/{id} says

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "leaves in the line or while computed": self._leaves_unanswered,
            "leaves in the line or while computed, RST": self._leaves_unanswered_reset,
            "leaves before its headers are whole": self._leaves_in_headers,
            "leaves before its body is whole": self._leaves_in_body,
            "leaves mid-stream": self._leaves_stream,
            "leaves mid-stream, RST": self._resets_stream,
            "closes its sending side": self._half_closes,
            "reads slowly": self._reads_slowly,
            "reads nothing": self._reads_nothing,
            "reads nothing of megabytes": self._reads_nothing_of_much,
            "watches the steps and leaves": self._watches_steps,
            "sends slowly, yet in time": self._sends_slowly,
            "never ends its headers": self._never_ends_headers,
            f"{NUM_IDLE} idle connections": self._idles,
            "pipelines": self._pipelines,
        }

    async def run(self, kind: str) -> None:
        """One client of a kind, to its end."""
        try:
            async with asyncio.timeout(self.deadline_s):
                await self.kinds[kind]()
        except TimeoutError:
            self.ledger.violate("misbehaving clients left hanging", f"{kind}: no end in {self.deadline_s:g} s")
        except GONE as error:
            self.ledger.violate("connections cut without cause", f"{kind}: {type(error).__name__}: {error}")

    # --- leaving ---------------------------------------------------------------------------------
    async def _leaves_unanswered(self) -> None:
        await self._send_and_leave("leaves in the line or while computed", lambda wire: wire.close())

    async def _leaves_unanswered_reset(self) -> None:
        await self._send_and_leave("leaves in the line or while computed, RST", lambda wire: wire.reset())

    async def _send_and_leave(self, kind: str, leave: Callable[[Wire], None]) -> None:
        ask = self._any_computed()
        async with connected(self.server.port) as wire:
            entry = self._enter(kind, ask)
            await wire.send(request_bytes(ask.path, ask.body, self.server.headers))
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.1, 0.5)))
            leave(wire)
            self._end(entry, End.LEFT)

    async def _leaves_in_headers(self) -> None:
        whole = request_bytes("/generate", {"prompts": ["x"]}, self.server.headers)
        await self._send_part(
            "leaves before its headers are whole", whole[: self.rng.randrange(1, whole.index(b"\r\n\r\n"))]
        )

    async def _leaves_in_body(self) -> None:
        whole = request_bytes("/generate", {"prompts": ["x" * 2000]}, self.server.headers)
        start = whole.index(b"\r\n\r\n") + 4
        await self._send_part("leaves before its body is whole", whole[: self.rng.randrange(start, len(whole))])

    async def _send_part(self, kind: str, part: bytes) -> None:
        entry = self._enter(kind, None)
        async with connected(self.server.port) as wire:
            await wire.send(part)
            await asyncio.sleep(self.rng.choice((0.0, 0.2)))
        self._end(entry, End.LEFT)

    async def _leaves_stream(self) -> None:
        await self._read_and_leave("leaves mid-stream", lambda wire: wire.close())

    async def _resets_stream(self) -> None:
        await self._read_and_leave("leaves mid-stream, RST", lambda wire: wire.reset())

    async def _read_and_leave(self, kind: str, leave: Callable[[Wire], None]) -> None:
        ask = self.draw.stream(GOES_ON)
        async with connected(self.server.port) as wire:
            entry, headers = await self._begin_stream(kind, ask, wire)
            if headers is None:
                return
            chunks, num = wire.chunks(), self.rng.randrange(4)
            while num and await anext(chunks, None) is not None:
                num -= 1
            leave(wire)
        self._end(entry, End.LEFT, is_taken=True)
        await self._see_freed(kind, headers["x-generation-id"])

    async def _begin_stream(self, kind: str, ask: Ask, wire: Wire) -> tuple[Entry, dict[str, str] | None]:
        """Headers of a stream that was taken in; ``None`` where it wasn't, which ends the entry."""
        entry = self._enter(kind, ask)
        await wire.send(request_bytes(ask.path, ask.body, self.server.headers))
        try:
            status, headers = await wire.read_head()
        except GONE as error:
            self._end(entry, End.LOST, f"{type(error).__name__}: {error}")
            return entry, None
        if status == 200:
            return entry, headers
        end = {429: End.QUEUE_FULL, 503: End.UNAVAILABLE}.get(status, End.LOST)
        self._end(entry, end, f"status {status}")
        return entry, None

    async def _see_freed(self, kind: str, request_id: str) -> None:
        """The request of a client that left must end, whatever the load."""
        left_s = time.monotonic()
        while not await self._is_over(request_id):
            await asyncio.sleep(FREED_ASK_S)
        self.max_freed_s = max(self.max_freed_s, time.monotonic() - left_s)

    async def _is_over(self, request_id: str) -> bool:
        async with connected(self.server.port) as wire:
            await wire.send(request_bytes(f"/requests/{request_id}", None, self.server.headers))
            reply = await wire.read_reply()
        return reply.status == 404 or b'"is_finished":true' in reply.body.replace(b" ", b"")

    # --- slow, idle and hasty ones ---------------------------------------------------------------
    async def _half_closes(self) -> None:
        """HTTP lets a server take this for leaving; an answer is fine too."""
        ask = self._any_computed()
        entry = self._enter("closes its sending side", ask)
        async with connected(self.server.port) as wire:
            await wire.send(request_bytes(ask.path, ask.body, {**self.server.headers, "Connection": "close"}))
            wire.half_close()
            await wire.read_to_end()
        self._end(entry, End.LEFT)

    async def _reads_slowly(self) -> None:
        """In time, if only just: the stream must come whole."""
        ask = self.draw.stream(GOES_ON)
        async with connected(self.server.port, is_small=True) as wire:
            entry, headers = await self._begin_stream("reads slowly", ask, wire)
            if headers is None:
                return
            body = b""
            try:
                async for chunk in wire.chunks():
                    body += chunk
                    await asyncio.sleep(min(0.02, self.client_timeout_s / 20))
            except GONE as error:
                self._end(entry, End.LOST, f"{error} after {len(body)} bytes", is_taken=True)
                return
        self._end(entry, End.ANSWERED, is_taken=True)

    async def _reads_nothing(self) -> None:
        """The server may drop it after its deadline for slow clients, and must free what it held."""
        ask = self.draw.wide_stream(GOES_ON, WIDE_N, WIDE_LOGPROBS)
        async with connected(self.server.port, is_small=True) as wire:
            entry, headers = await self._begin_stream("reads nothing", ask, wire)
            if headers is None:
                return
            await asyncio.sleep(self.rng.choice((1.0, 1.5 * self.client_timeout_s)))
        self._end(entry, End.LEFT, is_taken=True)
        await self._see_freed("reads nothing", headers["x-generation-id"])

    async def _reads_nothing_of_much(self) -> None:
        """More than buffers hold: it must be dropped, or the server would hold it for as long as the client likes."""
        entry = self._enter("reads nothing of megabytes", None)
        async with connected(self.server.port, is_small=True) as wire:
            await wire.send(request_bytes("/steps/trace", None, {**self.server.headers, "Connection": "close"}))
            await asyncio.sleep(1.5 * self.client_timeout_s + DROP_MARGIN_S)
            wire.widen()
            try:
                body = await wire.read_to_end()
            except ConnectionError:
                body = b""
        is_whole = body.endswith(b"\r\n0\r\n\r\n")
        if is_whole and len(body) > MOST_BUFFERED:
            self.ledger.violate("readers of nothing that weren't dropped", f"{len(body)} bytes came after all")
        self._end(entry, End.ANSWERED if is_whole else End.DROPPED)

    async def _watches_steps(self) -> None:
        entry = self._enter("watches the steps and leaves", None)
        async with connected(self.server.port) as wire:
            await wire.send(request_bytes(self.rng.choice(STEP_STREAMS), None, self.server.headers))
            status, _ = await wire.read_head()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.rng.uniform(0.1, WATCH_S)):
                    async for _ in wire.chunks():
                        pass
        self._end(entry, End.LEFT if status == 200 else End.LOST, f"status {status}")

    async def _sends_slowly(self) -> None:
        """A few bytes at a time, by the clock: a busy client isn't to be late by the sum of its own delays."""
        data = request_bytes("/tokenize", {"prompt": "a slow sender"}, self.server.headers)
        entry, num_sent, span_s = self._enter("sends slowly, yet in time", None), 0, self.client_timeout_s / 4
        async with connected(self.server.port) as wire:
            while num_sent < len(data):
                due = 1 + int(len(data) * (time.monotonic() - entry.sent_s) / span_s)
                await wire.send(data[num_sent:due])
                num_sent = max(num_sent, due)
                await asyncio.sleep(SEND_PAUSE_S)
            took_s = time.monotonic() - entry.sent_s
            reply = await wire.read_reply()
        is_right = reply.status in (200, 503) or took_s > self.client_timeout_s
        words = f"sent in {took_s:.1f} s: {reply.status} {reply.body!r:.200}"
        self._end(entry, End.ANSWERED if is_right else End.LOST, words)

    async def _never_ends_headers(self) -> None:
        """A header a second, for ever: the server must end it (408 or just so) at its deadline for slow clients."""
        entry = self._enter("never ends its headers", None)
        async with connected(self.server.port) as wire:
            reading = asyncio.create_task(wire.read_to_end())
            try:
                await wire.send(b"POST /generate HTTP/1.1\r\nHost: soak\r\n")
                while not reading.done():
                    await wire.send(b"X-More: 1\r\n")
                    await asyncio.wait([reading], timeout=1.0)
            except ConnectionError:
                pass
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        self._end(entry, End.DROPPED)

    async def _idles(self) -> None:
        entry = self._enter(f"{NUM_IDLE} idle connections", None)

        async def idle() -> None:
            async with connected(self.server.port):
                await asyncio.sleep(IDLE_S)

        await asyncio.gather(*(idle() for _ in range(NUM_IDLE)))
        self._end(entry, End.LEFT)

    async def _pipelines(self) -> None:
        """Several requests in one write: as many answers, in their order."""
        one = request_bytes("/tokenize", {"prompt": "first"}, self.server.headers)
        two = request_bytes("/no/such/route", None, self.server.headers)
        three = request_bytes("/tokenize", {"prompt": "third, and longer"}, self.server.headers)
        entries = [self._enter("pipelines", None) for _ in range(3)]
        async with connected(self.server.port) as wire:
            await wire.send(one + two + three)
            for entry, wanted in zip(entries, (200, 404, 200), strict=True):
                reply = await wire.read_reply()
                is_right = reply.status in (wanted, 503)
                self._end(entry, End.ANSWERED if is_right else End.LOST, f"status {reply.status} instead of {wanted}")

    # --- the book --------------------------------------------------------------------------------
    def _any_computed(self) -> Ask:
        while not (ask := self.draw.ask()).num_sequences:
            pass
        return ask

    def _enter(self, kind: str, ask: Ask | None) -> Entry:
        policy, num = (ask.policy, ask.num_sequences) if ask else (None, 0)
        return self.ledger.send(f"fault: {kind}", policy, num, time.monotonic())

    def _end(self, entry: Entry, how: End, words: str = "", *, is_taken: bool | None = None) -> None:
        self.ledger.end(entry, how, time.monotonic(), words, is_taken=is_taken)
