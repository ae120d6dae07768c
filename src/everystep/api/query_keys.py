"""Keys of the query string: those that a route takes, each once; any other is refused, never ignored.

Owns that check for every route, the documentation's included.  What the values may be is the route's to say.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import FastAPI
from fastapi.requests import Request
from fastapi.routing import APIRoute
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from everystep.errors import InvalidParameter


async def check_query_keys(request: Request) -> None:
    """A dependency of every route of ours.  Raises :class:`InvalidParameter` that names the key."""
    if request.scope["query_string"]:
        route = request.scope["route"]
        assert isinstance(route, APIRoute)
        _check(request, [field.alias for field in route.dependant.query_params])


def guard_plain_routes(app: FastAPI) -> None:
    """The same for routes that the framework made, which have no dependencies and take no keys."""
    for route in app.routes:
        if type(route) is Route:
            route.app = _without_query(route.app)


def _without_query(inner: ASGIApp) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            _check(Request(scope), ())
        await inner(scope, receive, send)

    return guarded


def _check(request: Request, known: Collection[str]) -> None:
    given = [name for name, _ in request.query_params.multi_items()]
    path = request.url.path
    for name in given:
        if name not in known:
            words = f"takes {', '.join(known)}" if known else "takes none"
            raise InvalidParameter(f"unknown query parameter {name[:60]!r}: {path[:60]} {words}", param=name[:60])
        if given.count(name) > 1:
            raise InvalidParameter(f"the query parameter {name!r} is given {given.count(name)} times", param=name)
