"""Sends a right request over HTTP and reads its one end: a whole answer, a typed error, or nothing that may be.

Owns what makes an answer whole, event streams included, and which error is which end.  Ignorant of why a request is
sent.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
from soak_ledger import End, Ledger
from soak_requests import Ask

ENDS = {
    "queue_full": End.QUEUE_FULL,
    "queue_timeout": End.QUEUE_TIMEOUT,
    "request_timeout": End.REQUEST_TIMEOUT,
    "engine_unavailable": End.UNAVAILABLE,
    "too_many_connections": End.UNAVAILABLE,
    "engine_failed": End.WORKER_DIED,
}
STATUSES = {
    "queue_full": 429,
    "queue_timeout": 503,
    "request_timeout": 504,
    "engine_unavailable": 503,
    "too_many_connections": 503,
    "engine_failed": 500,
}
DEATH_WORDS = "ended while serving this request"
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=5.0)


class Malformed(Exception):
    """An answer that isn't what the endpoint promises."""


@dataclass(frozen=True)
class Reply:
    """How a request ended, and what it brought."""

    end: End
    texts: tuple[str, ...] = ()
    words: str = ""
    is_taken: bool | None = None  # whether the server took it in, where the end alone doesn't tell


@dataclass
class Asking:
    """One client of the server, with a pool of connections."""

    http: httpx.AsyncClient
    ledger: Ledger
    deadline_s: float  # after which a request without an end is HUNG
    now_s: Callable[[], float] = time.monotonic

    async def ask(self, ask: Ask) -> Reply:
        """Send, and write the one end into the ledger."""
        entry = self.ledger.send(ask.kind, ask.policy, ask.num_sequences, self.now_s())
        try:
            async with asyncio.timeout(self.deadline_s):
                reply = await self._answer(ask)
        except TimeoutError:
            reply = Reply(End.HUNG, words=f"no end in {self.deadline_s:g} s")
        except Malformed as error:
            reply = Reply(End.LOST, words=f"malformed: {error}")
        except (httpx.HTTPError, httpx.StreamError) as error:
            reply = Reply(End.LOST, words=f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self.ledger.end(entry, End.LEFT, self.now_s(), "the soak ended")
            raise
        if reply.end is End.REFUSED:
            reply = Reply(
                End.LOST, words=f"refused, though it is right: {reply.words}; {ask.body!r:.300}", is_taken=False
            )
        self.ledger.end(entry, reply.end, self.now_s(), reply.words, is_taken=reply.is_taken)
        return reply

    async def _answer(self, ask: Ask) -> Reply:
        method = "GET" if ask.body is None else "POST"
        if not ask.is_stream:
            response = await self.http.request(method, ask.path, json=ask.body)
            return read_whole(ask, response.status_code, response.content)
        async with self.http.stream(method, ask.path, json=ask.body) as response:
            if response.status_code != httpx.codes.OK:
                return read_whole(ask, response.status_code, await response.aread())
            self.ledger.stream_begins()
            try:
                reply = read_events(ask, b"".join([block async for block in response.aiter_bytes()]))
                return replace(reply, is_taken=True)
            finally:
                self.ledger.stream_ends()


# --- whole answers -------------------------------------------------------------------------------
def read_whole(ask: Ask, status: int, body: bytes) -> Reply:
    """Raises :class:`Malformed`."""
    if status != httpx.codes.OK:
        return _error_end(status, _json(body))
    if ask.body is None:
        return Reply(End.ANSWERED)
    found = _json(body)
    texts = tuple(_texts(found)) if ask.policy else ()
    if len(texts) != ask.num_sequences:
        raise Malformed(f"{len(texts)} texts for {ask.num_sequences} sequences: {body[:200]!r}")
    return Reply(End.ANSWERED, texts)


def _texts(found: dict[str, Any]) -> Iterator[str]:
    if "generated_text" in found:
        yield found["generated_text"]
    yield from found.get("generated_texts", ())
    for place, choice in enumerate(found.get("choices", ())):
        if choice["index"] != place or choice["finish_reason"] not in ("stop", "length"):
            raise Malformed(f"choice {place} is {choice}"[:200])
        yield choice["text"] if "text" in choice else choice["message"]["content"]


def _error_end(status: int, found: Any) -> Reply:
    """Which end an error is; one that isn't of our shape, or whose status isn't its own, is lost."""
    try:
        kind, words = found["error"]["type"], found["error"]["message"]
    except (KeyError, TypeError):
        raise Malformed(f"status {status} without our error: {found!r:.200}") from None
    says = f"{status} {kind}: {words}"
    end = ENDS.get(kind)
    if end is None:
        return Reply(End.REFUSED if 400 <= status < 500 else End.LOST, words=says)
    is_internal = kind == "engine_failed" and DEATH_WORDS not in words
    is_right = STATUSES[kind] == status and not is_internal
    return Reply(end if is_right else End.LOST, words=says)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Malformed(f"no JSON ({error}): {body[:200]!r}") from None


# --- event streams -------------------------------------------------------------------------------
def read_events(ask: Ask, body: bytes) -> Reply:
    """A stream that ended, as HTTP means it.  Raises :class:`Malformed`."""
    if body and not body.endswith(b"\n\n"):
        raise Malformed(f"the stream ends within an event: {body[-100:]!r}")
    texts: dict[Any, str] = {}
    finished: set[Any] = set()
    is_done = False
    for event in body.split(b"\n\n"):
        name, data = _fields(event)
        if not data:
            continue
        if is_done:
            raise Malformed(f"an event after the end: {data[:100]!r}")
        if name == b"error":
            found = _json(data)
            return _error_end(STATUSES.get(found.get("error", {}).get("type"), 500), found)
        is_done = data == b"[DONE]"
        if not is_done:
            _take(_json(data), texts, finished)
    if ask.path.startswith("/v1/") and (not is_done or len(finished) != ask.num_sequences):
        raise Malformed(f"{len(finished)} of {ask.num_sequences} choices whole, [DONE] {is_done}: {body[-200:]!r}")
    return Reply(End.ANSWERED, tuple(texts[key] for key in sorted(texts)))


def _fields(event: bytes) -> tuple[bytes, bytes]:
    name, data = b"", []
    for line in event.splitlines():
        field_name, _, value = line.partition(b":")
        if field_name == b"event":
            name = value.strip()
        if field_name == b"data":
            data.append(value.strip())
    return name, b"\n".join(data)


def _take(found: dict[str, Any], texts: dict[Any, str], finished: set[Any]) -> None:
    if "token" in found:
        texts[found["sequence_id"]] = texts.get(found["sequence_id"], "") + found["token"]
    for choice in found.get("choices", ()):
        index = choice["index"]
        if index in finished:
            raise Malformed(f"choice {index} goes on after its end")
        text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        texts[index] = texts.get(index, "") + text
        if choice["finish_reason"]:
            finished.add(index)
