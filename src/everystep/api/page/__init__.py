"""``GET /``: the live page.

Owns the route.  What the page shows it reads from the routes that everybody has.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from everystep.api.page.document import live_page


def router() -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["observability"])
    document = live_page()

    @routes.get("/", summary="The live page: who sits in which seat, who waits and why", response_class=Response)
    async def page() -> Response:
        return document.reply()

    return routes
