"""The outermost layer: a request's id in and out, and the one place where an unforeseen exception ends.

Owns ``X-Request-Id`` and ``X-Generation-Id``, and that no generation outlives its request.  A pure ASGI middleware, so
that a client's leaving passes through.
"""

from __future__ import annotations

import logging
import re
import uuid

from fastapi.requests import Request
from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everystep.api.error_replies import error_reply, error_type
from everystep.errors import EngineFailed, EverystepError, http_status

logger = logging.getLogger(__name__)

REQUEST_ID = "everystep.request_id"  # key of the scope
GENERATION_ID = "everystep.generation_id"
GENERATION = "everystep.generation"
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

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID] = _request_id(Headers(scope=scope).get("x-request-id"))
        is_started = False

        async def send_named(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                _add_ids(message, scope)
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except EverystepError as error:
            note_failure(error, scope)
            await error_reply(error, scope["path"])(scope, receive, send_named)
        except Exception:
            logger.exception("request %s: unforeseen", scope[REQUEST_ID])
            if not is_started:
                failure = EngineFailed(f"internal error; the log has it under {scope[REQUEST_ID]}")
                await error_reply(failure, scope["path"])(scope, receive, send_named)
        finally:
            # Who works with a generation ends it; this is for whatever comes between its start and that.
            if GENERATION in scope:
                scope[GENERATION].abort()


def _request_id(given: str | None) -> str:
    return given if given is not None and SANE_ID.fullmatch(given) else fresh_request_id()


def _add_ids(message: Message, scope: Scope) -> None:
    headers = MutableHeaders(scope=message)
    headers["x-request-id"] = scope[REQUEST_ID]
    if GENERATION_ID in scope:
        headers["x-generation-id"] = scope[GENERATION_ID]
