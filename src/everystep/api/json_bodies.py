"""Bodies as JSON, strictly: no NaN, no invalid UTF-8, no lone surrogate, no nesting without end, no half a number.

Owns the parse.  Ignorant of what a body should hold: models of the endpoints say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi.requests import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute


class JsonRequest(Request):
    """A request whose ``json()`` is strict, and several times as fast as the standard library's."""

    async def json(self) -> Any:
        """The body's value.  Raises ``JSONDecodeError``, for which the framework has a place, whatever is wrong."""
        body = await self.body()
        try:
            return msgspec.json.decode(body)
        except RecursionError:
            raise json.JSONDecodeError("it is nested too deeply", "", 0) from None
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class JsonRoute(APIRoute):
    """A route that hands out :class:`JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def json_reply(value: object) -> Response:
    """A reply whose value needs no validation: it is ours."""
    return Response(msgspec.json.encode(value), media_type="application/json")
