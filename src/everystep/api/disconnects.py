"""Clients that leave: the work done for them ends at once.

Owns the watch on a connection whose reply isn't streamed (a stream's response watches for itself).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi.requests import Request

from everystep.api.request_scope import REQUEST_ID
from everystep.errors import ClientGone

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives.  If the client leaves first, cancel it and raise :class:`ClientGone`.

    The body must have been read: what comes next on the connection is its end.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        logger.info("request %s: the client left (499)", request.scope.get(REQUEST_ID))
        raise ClientGone("the client left before the answer")
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
