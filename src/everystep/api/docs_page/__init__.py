"""``GET /docs``: every route of this server, to read and to try.

Owns the route.  What is shown is ``/openapi.json``, which :mod:`everystep.api.openapi` describes.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from everystep.api.docs_page.document import docs_page


def router() -> APIRouter:
    """The route, which is not one of those that the page describes."""
    routes = APIRouter()
    document = docs_page()

    @routes.get("/docs", include_in_schema=False, response_class=Response)
    async def docs() -> Response:
        return document.reply()

    return routes
