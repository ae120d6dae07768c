"""The largest body that is read: refused by its announced length, or as soon as what has come is too much.

Owns the count.  Ignorant of what a body holds.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everystep.errors import BodyTooLarge


class BodyLimit:
    """Middleware that stands between the server and whoever reads the body."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")[:20]  # digits enough to be too many
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise BodyTooLarge(f"the body has {announced} bytes; at most {self._max_bytes} are read (--max-body-mib)")
        num_bytes = 0

        async def counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                # Of the exceptions raised while a body is read, the framework passes on its own kind alone.
                raise HTTPException(413, f"the body has over {self._max_bytes} bytes, the most read (--max-body-mib)")
            return message

        await self._app(scope, counted, send)
