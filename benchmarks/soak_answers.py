"""Reads what came for a right request: a whole answer, a typed error, or what no endpoint promises.

Owns what makes an answer whole and the asker's own, event streams included, and which error is which end.  Ignorant of
connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from soak_ledger import End
from soak_requests import Ask

OK = 200
ENDS = {
    "queue_full": (End.QUEUE_FULL, 429),
    "queue_timeout": (End.QUEUE_TIMEOUT, 503),
    "request_timeout": (End.REQUEST_TIMEOUT, 504),
    "engine_unavailable": (End.UNAVAILABLE, 503),
    "too_many_connections": (End.UNAVAILABLE, 503),
    "engine_failed": (End.WORKER_DIED, 500),
}
WAITS_TO_COME = {End.QUEUE_FULL, End.UNAVAILABLE}  # of these ends, a reply says when to come again
DEATH_WORDS = "ended while serving this request"


class Malformed(Exception):
    """An answer that isn't what the endpoint promises."""


@dataclass(frozen=True)
class Reply:
    """How a request ended, and what it brought."""

    end: End
    texts: tuple[str, ...] = ()
    words: str = ""
    is_taken: bool | None = None  # whether the server took it in, where the end alone doesn't tell
    request_id: str | None = None  # the server's name for its work


def read_whole(ask: Ask, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    """Raises :class:`Malformed`.  Where ``headers`` are given, they are judged too."""
    if status != OK:
        reply = error_end(status, _json(body))
        if headers is not None and reply.end in WAITS_TO_COME and int(headers.get("retry-after", "0")) < 1:
            raise Malformed(f"no Retry-After beside {reply.words}")
        return reply
    if ask.body is None:
        return Reply(End.ANSWERED)
    found = _json(body)
    texts = tuple(_texts(found)) if ask.policy else ()
    if len(texts) != ask.num_sequences:
        raise Malformed(f"{len(texts)} texts for {ask.num_sequences} sequences: {body[:200]!r}")
    _check_own(ask, texts)
    _check_usage(ask, found.get("usage"))
    return Reply(End.ANSWERED, texts)


def _texts(found: dict[str, Any]) -> Iterator[str]:
    if "generated_text" in found:
        yield found["generated_text"]
    yield from found.get("generated_texts", ())
    for place, choice in enumerate(found.get("choices", ())):
        if choice["index"] != place or choice["finish_reason"] not in ("stop", "length"):
            raise Malformed(f"choice {place} is {choice}"[:200])
        yield choice["text"] if "text" in choice else choice["message"]["content"]


def _check_own(ask: Ask, texts: tuple[str, ...]) -> None:
    """Where the prompt was to come back, each text begins with its own."""
    for prompt, text in zip(ask.echoes, texts, strict=False):
        if not text.startswith(prompt):
            raise Malformed(f"an answer to another's prompt: {text[:100]!r} instead of {prompt[:100]!r}")


def _check_usage(ask: Ask, usage: Any) -> None:
    """No token is lost or doubled where their number is known."""
    if usage is not None and ask.num_tokens is not None and usage["completion_tokens"] != ask.num_tokens:
        raise Malformed(f"{usage['completion_tokens']} tokens instead of {ask.num_tokens}")


def error_end(status: int | None, found: Any) -> Reply:
    """Which end an error is; one that isn't of our shape, or whose status isn't its own, is lost.

    ``status`` is ``None`` within a stream, which has said 200 already.
    """
    try:
        kind, words = found["error"]["type"], found["error"]["message"]
    except (KeyError, TypeError):
        raise Malformed(f"status {status} without our error: {found!r:.200}") from None
    says = f"{status} {kind}: {words}"
    end, right_status = ENDS.get(kind, (End.REFUSED, status))
    is_internal = kind == "engine_failed" and DEATH_WORDS not in words
    if is_internal or status not in (None, right_status) or (kind not in ENDS and not 400 <= (status or 500) < 500):
        return Reply(End.LOST, words=says)
    return Reply(end, words=says)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Malformed(f"no JSON ({error}): {body[:200]!r}") from None


# --- event streams -------------------------------------------------------------------------------
@dataclass
class _Events:
    """What the events of one stream have brought so far."""

    texts: dict[Any, str] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    usage: Any = None

    def take(self, found: dict[str, Any]) -> None:
        if "token" in found:
            self.texts[found["sequence_id"]] = self.texts.get(found["sequence_id"], "") + found["token"]
        for choice in found.get("choices", ()):
            index = choice["index"]
            if index in self.finished:
                raise Malformed(f"choice {index} goes on after its end")
            text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            self.texts[index] = self.texts.get(index, "") + text
            if choice["finish_reason"]:
                self.finished.add(index)
        self.usage = found.get("usage") or self.usage


def read_events(ask: Ask, body: bytes) -> Reply:
    """A stream that ended, as HTTP means it.  Raises :class:`Malformed`."""
    if body and not body.endswith(b"\n\n"):
        raise Malformed(f"the stream ends within an event: {body[-100:]!r}")
    events, is_done = _Events(), False
    for name, data in filter(lambda event: event[1], map(_fields, body.split(b"\n\n"))):
        if is_done:
            raise Malformed(f"an event after the end: {data[:100]!r}")
        if name == b"error":
            return error_end(None, _json(data))
        is_done = data == b"[DONE]"
        if not is_done:
            events.take(_json(data))
    if ask.path.startswith("/v1/") and (not is_done or len(events.finished) != ask.num_sequences):
        raise Malformed(
            f"{len(events.finished)} of {ask.num_sequences} choices whole, [DONE] {is_done}: {body[-99:]!r}"
        )
    texts = tuple(events.texts[key] for key in sorted(events.texts))
    _check_own(ask, texts)
    _check_usage(ask, events.usage)
    return Reply(End.ANSWERED, texts)


def _fields(event: bytes) -> tuple[bytes, bytes]:
    name, data = b"", []
    for line in event.splitlines():
        field_name, _, value = line.partition(b":")
        if field_name == b"event":
            name = value.strip()
        if field_name == b"data":
            data.append(value.strip())
    return name, b"\n".join(data)
