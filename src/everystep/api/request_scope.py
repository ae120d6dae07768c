"""The outermost layer: a request's id in and out, and the one place where an unforeseen exception ends.

Owns ``X-Request-Id`` and ``X-Generation-Id``, that the request's lines in the log bear the first, that no generation
outlives its request, and when a request's span begins and ends.  A pure ASGI middleware, so that a client's leaving
passes through.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi.requests import Request
from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everystep.api.error_replies import error_reply, error_type
from everystep.errors import EngineFailed, EverystepError, http_status
from everystep.observe.logs import logging_request

if TYPE_CHECKING:
    from everystep.api.tracing import RequestSpan, Tracing

logger = logging.getLogger(__name__)

REQUEST_ID = "everystep.request_id"  # key of the scope
GENERATION_ID = "everystep.generation_id"
GENERATION = "everystep.generation"
FAILURE = "everystep.failure"  # the error that the client was told, in a reply or within a stream
REPLY = "everystep.reply"  # the message that began the reply
FAILED = 500
SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def fresh_hex(num_digits: int) -> str:
    """Random digits for an id."""
    return uuid.uuid4().hex[:num_digits]


def fresh_request_id() -> str:
    """For a request whose client gave it none."""
    return f"req-{fresh_hex(24)}"


def name_generation(scope: Scope, prefix: str) -> str:
    """The engine's id for this request's work.  Unique even where two clients send the same ``X-Request-Id``."""
    request_id = str(scope[REQUEST_ID])
    is_ours = request_id.startswith("req-") and "x-request-id" not in Headers(scope=scope)
    name = prefix + (request_id.removeprefix("req-") if is_ours else f"{request_id}-{fresh_hex(8)}")
    scope[GENERATION_ID] = name
    return name


def note_failure(error: EverystepError, scope: Scope) -> None:
    """Each request that failed by no doing of its client's stands in the log, by its ids."""
    scope[FAILURE] = error
    if http_status(error) == FAILED:
        ids = scope.get(REQUEST_ID), scope.get(GENERATION_ID, "-")
        logger.warning("request %s, generation %s: %s: %s", *ids, error_type(error), error.message)


async def on_error(request: Request, error: Exception) -> Response:
    """One of our own errors, which a handler raised."""
    assert isinstance(error, EverystepError)
    note_failure(error, request.scope)
    return error_reply(error, request.url.path)


class RequestScope:
    """Names each request and turns whatever still comes up into a reply."""

    def __init__(self, app: ASGIApp, tracing: Tracing | None = None) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID] = request_id_of(scope)
        span = self._tracing.begin(scope) if self._tracing is not None else None
        with _named_lines(scope, span):
            try:
                await self._handle(scope, receive, send)
            finally:
                # Who works with a generation ends it; this is for whatever comes between its start and that.
                if GENERATION in scope:
                    scope[GENERATION].abort()
                if span is not None:
                    span.end(scope)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope[REPLY] = message
                _add_ids(message, scope)
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except EverystepError as error:
            note_failure(error, scope)
            await error_reply(error, scope["path"])(scope, receive, send_named)
        except Exception:
            logger.exception("request %s: unforeseen", scope[REQUEST_ID])
            scope[FAILURE] = failure = EngineFailed(f"internal error; the log has it under {scope[REQUEST_ID]}")
            if REPLY not in scope:
                await error_reply(failure, scope["path"])(scope, receive, send_named)


def request_id_of(scope: Mapping[str, Any]) -> str:
    """The one that the request has, or was given by its client; a new one else."""
    given = scope.get(REQUEST_ID) or Headers(raw=scope["headers"]).get("x-request-id")
    return given if given is not None and SANE_ID.fullmatch(given) else fresh_request_id()


def _named_lines(scope: Scope, span: RequestSpan | None) -> contextlib.AbstractContextManager[None]:
    if span is None:
        return logging_request(scope[REQUEST_ID])
    return logging_request(scope[REQUEST_ID], trace_id=span.trace_id, span_id=span.span_id)


def _add_ids(message: Message, scope: Scope) -> None:
    headers = MutableHeaders(scope=message)
    headers["x-request-id"] = scope[REQUEST_ID]
    if GENERATION_ID in scope:
        headers["x-generation-id"] = scope[GENERATION_ID]
