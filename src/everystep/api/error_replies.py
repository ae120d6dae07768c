"""Every error as a reply of one shape: ``{"error": {"type", "message", "param"}}``.

Owns the shape, the words for malformed bodies, and the headers that belong to a status.  ``/v1/*`` gets OpenAI's
``code`` in addition, and 400 where the other endpoints say 422, as OpenAI's own API does.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from everystep.errors import (
    AuthenticationFailed,
    BodyTooLarge,
    EngineUnavailable,
    EverystepError,
    InvalidParameter,
    InvalidRequest,
    MalformedBody,
    NotFound,
    QueueFull,
    QueueTimeout,
    TooManyConnections,
    UnsupportedOption,
    http_status,
)

OPENAI_PREFIX = "/v1/"
RETRY_UNAVAILABLE_S = 5
MAX_MESSAGE_CHARS, MAX_PARAM_CHARS = 800, 100
MAX_WORDINGS = 3  # of one field that several types were tried for


class MethodNotAllowed(EverystepError):
    """The route exists, but not for this method."""


def error_type(error: EverystepError) -> str:
    """``PromptTooLong`` → ``prompt_too_long``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def error_json(error: EverystepError, path: str) -> bytes:
    """The body of a reply, or the data of an error event."""
    param = None if error.param is None else _short(error.param, MAX_PARAM_CHARS)
    fields = {"type": error_type(error), "message": _short(error.message, MAX_MESSAGE_CHARS), "param": param}
    if path.startswith(OPENAI_PREFIX):
        fields["code"] = fields["type"]
    return msgspec.json.encode({"error": fields})


def _short(text: str, max_chars: int) -> str:
    """A client's own megabyte isn't sent back, whichever of its values a message names."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def error_reply(error: EverystepError, path: str, *, status: int | None = None) -> Response:
    """The whole reply; ``status`` where the table of errors doesn't know it."""
    headers = dict(_headers(error))
    body = error_json(error, path)
    return Response(body, status or http_status(error), headers=headers, media_type="application/json")


def _headers(error: EverystepError) -> Mapping[str, str]:
    if isinstance(error, QueueFull):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    if type(error) in (EngineUnavailable, QueueTimeout, TooManyConnections):
        return {"Retry-After": str(RETRY_UNAVAILABLE_S)}
    if isinstance(error, AuthenticationFailed):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, BodyTooLarge):
        return {"Connection": "close"}  # the rest of the body isn't worth reading
    return {}


# --- handlers for the app ------------------------------------------------------------------------
async def on_recursion(request: Request, error: Exception) -> Response:
    """A value nested deeper than whoever reads it can follow."""
    return error_reply(InvalidRequest("the request is nested too deeply"), request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """An error of the web framework: no such route, a method that a route doesn't take, a body cut short."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    match error.status_code:
        case 404:
            return error_reply(NotFound(f"no route {path!r}; see /docs"), path)
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            reply = error_reply(MethodNotAllowed(f"{path} takes {allowed}, not {request.method}"), path, status=405)
            reply.headers["Allow"] = allowed
            return reply
        case 413:
            return error_reply(BodyTooLarge(error.detail), path)
        case 422:
            malformed = InvalidRequest if path.startswith(OPENAI_PREFIX) else MalformedBody
            return error_reply(malformed(error.detail), path)
    return error_reply(InvalidRequest(error.detail), path, status=error.status_code)


async def on_malformed(request: Request, error: Exception) -> Response:
    """A body that isn't what the endpoint takes."""
    assert isinstance(error, RequestValidationError)
    path = request.url.path
    return error_reply(_malformed(error.errors(), is_openai=path.startswith(OPENAI_PREFIX)), path)


def _malformed(found: Sequence[Mapping[str, Any]], *, is_openai: bool) -> EverystepError:
    """The complaint as an error that names the field and the value: of the first bad field, the innermost part."""
    field = found[0]["loc"][:2]
    first = max((complaint for complaint in found if complaint["loc"][:2] == field), key=lambda bad: len(bad["loc"]))
    param = _param(first["loc"])
    is_unknown = first["type"] == "extra_forbidden"
    message = f"unknown field {param!r}" if is_unknown else _message(first, found, param)
    if not is_openai:
        return MalformedBody(message, param=param)
    return (UnsupportedOption if is_unknown else InvalidParameter)(message, param=param)


def _message(first: Mapping[str, Any], found: Sequence[Mapping[str, Any]], param: str | None) -> str:
    if first["type"] == "json_invalid":
        return f"the body is no valid JSON: {first['ctx']['error']}"
    if param is None:
        return "the body must be a JSON object, sent with Content-Type: application/json"
    if first["type"] == "missing":
        return f"{param} is missing"
    same = [complaint["msg"] for complaint in found if _param(complaint["loc"]) == param]
    wordings = " or ".join(dict.fromkeys(same[:MAX_WORDINGS]))
    return f"{param}={reprlib.repr(first.get('input'))}: {wordings}"


def _param(location: Sequence[str | int]) -> str | None:
    """``("body", "messages", 0, "content", "str")`` → ``messages.0.content``; ``None`` for the body as a whole."""
    if len(location) < 2 or isinstance(location[1], int):
        return None  # a number here is a place in the text of malformed JSON
    nested = [str(part) for part in location[2:] if not _is_type_tag(part)]
    return ".".join([location[1], *nested])


def _is_type_tag(part: str | int) -> bool:
    """Whether a part of a location is the name that Pydantic gives to one of several types."""
    return isinstance(part, str) and (part in ("str", "ContentPart") or "[" in part)
