"""Sends a right request over HTTP, waits for its one end and books it.

Owns the client's deadline and the names of requests, by which an answer is known to be the asker's.  Ignorant of why a
request is sent and of how answers look.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

import httpx
from soak_answers import Malformed, Reply, read_events, read_whole
from soak_ledger import TAKEN_IN, End, Ledger
from soak_requests import Ask

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=5.0)
NAME, GENERATION = "x-request-id", "x-generation-id"


@dataclass
class Asking:
    """One client of the server, with a pool of connections."""

    http: httpx.AsyncClient
    ledger: Ledger
    deadline_s: float  # after which a request without an end is HUNG
    max_late_s: float = 0.0  # by which a request outlived its own deadline

    async def ask(self, ask: Ask) -> Reply:
        """Send, and write the one end into the ledger."""
        entry = self.ledger.send(ask.kind, ask.policy, ask.num_sequences, time.monotonic())
        try:
            reply = await self._guarded(ask, f"soak-{entry.number}")
        except asyncio.CancelledError:
            self.ledger.end(entry, End.LEFT, time.monotonic(), "the soak ended")
            raise
        if reply.end is End.REFUSED:
            words = f"refused, though it is right: {reply.words}; {ask.body!r:.300}"
            reply = Reply(End.LOST, words=words, is_taken=False)
        self.ledger.end(entry, reply.end, time.monotonic(), reply.words, is_taken=reply.is_taken)
        if ask.timeout_s is not None and reply.request_id and reply.end in TAKEN_IN:
            await self._note_late(ask.timeout_s, reply.request_id)
        return reply

    async def _note_late(self, timeout_s: float, request_id: str) -> None:
        """By the server's clock: a burst keeps its client busy for longer than some deadlines."""
        story = await self.http.get(f"/requests/{request_id}")
        if story.status_code == httpx.codes.OK:
            spans_s = [one["e2e_s"] for one in story.json()["sequences"] if one["e2e_s"] is not None]
            self.max_late_s = max([self.max_late_s, *(span_s - timeout_s for span_s in spans_s)])

    async def _guarded(self, ask: Ask, name: str) -> Reply:
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self._answer(ask, name)
        except TimeoutError:
            return Reply(End.HUNG, words=f"no end in {self.deadline_s:g} s")
        except Malformed as error:
            return Reply(End.LOST, words=f"malformed: {error}")
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Reply(End.LOST, words=f"{type(error).__name__}: {error}")

    async def _answer(self, ask: Ask, name: str) -> Reply:
        method = "GET" if ask.body is None else "POST"
        async with self.http.stream(method, ask.path, json=ask.body, headers={NAME: name}) as response:
            if response.headers.get(NAME) != name:
                raise Malformed(f"an answer to {response.headers.get(NAME)!r} instead of {name!r}")
            if not ask.is_stream or response.status_code != httpx.codes.OK:
                reply = read_whole(ask, response.status_code, await response.aread(), response.headers)
                return replace(reply, request_id=response.headers.get(GENERATION))
            self.ledger.stream_begins()
            try:
                reply = read_events(ask, b"".join([block async for block in response.aiter_bytes()]))
                return replace(reply, is_taken=True, request_id=response.headers.get(GENERATION))
            finally:
                self.ledger.stream_ends()
