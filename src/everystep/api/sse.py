"""Streams of server-sent events: one way out for every endpoint that streams a generation.

Owns what becomes of a stream that fails (an ``error`` event, then the end) and of a client that leaves (the generation
is aborted, whenever that is).  The wire is sse-starlette's: pings that proxies want, slow readers, the server's end.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

from fastapi.requests import Request
from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

from everystep.api.answers import raise_failure
from everystep.api.error_replies import error_json
from everystep.api.request_scope import FAILURE, REQUEST_ID, note_failure
from everystep.engine.client import EngineClient, Generation
from everystep.errors import EngineFailed, EverystepError
from everystep.messages import Delta

logger = logging.getLogger(__name__)

PING_S = 15  # a comment that no client sees; well below the minute after which proxies close idle connections
DRAIN_MARGIN_S = 5.0  # the engine ends what still runs at the drain deadline; its last events then get this long


def forget_earlier_servers() -> None:
    """The end of a server is a sign to all streams of its process, and the library never takes it back."""
    AppStatus.should_exit = False


class Chunks(Protocol):
    """Deltas as the bytes of whole events, ``b"data: …\\n\\n"``; nothing is fine too."""

    def of(self, delta: Delta) -> bytes: ...

    def end(self) -> bytes: ...


class EventResponse(EventSourceResponse):
    """Server-sent events.  Whether their connection is kept is for it to say; the library would promise that it is."""

    _owes_end = True  # a client that is there waits for the last message

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        del self.headers["connection"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The library's listeners (for the server's end, say) cancel what is being sent, the last message too."""
        await super().__call__(scope, receive, send)
        if self._owes_end and scope["method"] != "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream_response(self, send: Send) -> None:
        await super()._stream_response(send)
        self._owes_end = False

    async def _listen_for_disconnect(self, receive: Receive) -> None:
        await super()._listen_for_disconnect(receive)
        self._owes_end = False


class EventStream(EventResponse):
    """A generation as a response.  However the response ends, the generation is over."""

    def __init__(self, request: Request, engine: EngineClient, generation: Generation, chunks: Chunks) -> None:
        self._request = request
        self._generation = generation
        self._chunks = chunks
        self._iterator = self._events()
        super().__init__(
            self._iterator,
            ping=PING_S,
            sep="\n",
            # At the server's end streams are drained, not cut: the engine gives each its end.
            shutdown_grace_period=engine.settings.drain_timeout + DRAIN_MARGIN_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._generation:  # a client may leave before the first event is asked for
            await super().__call__(scope, receive, send)

    async def _stream_response(self, send: Send) -> None:
        """The library's own logs each event, which is text of the model's, and opens a cancel scope for each."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._iterator) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        async with self._send_lock:  # a ping behind the end would be one too many
            self.active = False
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            self._owes_end = False

    async def _events(self) -> AsyncGenerator[bytes]:
        try:
            async for delta in self._generation:
                raise_failure(delta)
                if chunk := self._chunks.of(delta):
                    yield chunk
            if last := self._chunks.end():
                yield last
        except EverystepError as error:
            note_failure(error, self._request.scope)
            yield self._error_event(error)
        except Exception:
            request_id = self._request.scope.get(REQUEST_ID)
            logger.exception("request %s: unforeseen, in a stream", request_id)
            failure = EngineFailed(f"internal error; the log has it under {request_id}")
            self._request.scope[FAILURE] = failure
            yield self._error_event(failure)

    def _error_event(self, error: EverystepError) -> bytes:
        return b"event: error\ndata: " + error_json(error, self._request.url.path) + b"\n\n"
