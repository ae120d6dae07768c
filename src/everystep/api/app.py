"""The application: routers, middleware and the engine's life, put together.

Owns the order of the layers.  A request passes them from the outermost: its name and the last resort for errors, the
key, the size of the body, then routes.  All are pure ASGI, so that a client's leaving reaches whoever works for it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from everystep.api import (
    docs_page,
    engine_facts,
    error_replies,
    figures,
    native,
    observability,
    openai_chat,
    openai_completions,
    openai_models,
    page,
    tokens,
    trying,
)
from everystep.api.auth import ApiKeys
from everystep.api.body_limit import BodyLimit
from everystep.api.docs_page.document import docs_page as docs_document
from everystep.api.openapi import describe
from everystep.api.page.document import live_page
from everystep.api.query_keys import check_query_keys, guard_plain_routes
from everystep.api.request_scope import RequestScope, on_error
from everystep.api.sse import forget_earlier_servers
from everystep.api.tracing import Tracing, open_tracing
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.errors import EverystepError
from everystep.settings_sources import load_settings, with_file_keys
from everystep.version import __version__

DESCRIPTION = "An LLM inference server in which a policy decides, before every step, who shares the forward pass."
# The framework's own traces, which a variable turns on: its errors quote bodies.  Older ones take no notice of this.
NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
ERROR_STATUSES = (400, 401, 404, 405, 408, 413, 415, 422, 429, 431, 500, 503, 504)


class ErrorFields(BaseModel):
    type: str
    message: str
    param: str | None


class ErrorReply(BaseModel):
    """The shape of every error; ``/v1/*`` has ``code`` in addition."""

    error: ErrorFields


def create_app(settings: Settings | None = None, *, engine: EngineClient | None = None) -> FastAPI:
    """An ASGI application whose lifespan starts and closes its engine.

    Without ``settings`` those of the environment (``EVERYSTEP_*``) are used; ``engine`` replaces the one that the
    settings describe, and brings its own settings.  Where it listens is its server's choice, not that of ``host``:
    without an API key whoever comes from elsewhere is refused, unless ``insecure_no_auth`` is set.  Raises
    :class:`ConfigError`.
    """
    if engine is None:
        engine = EngineClient(with_file_keys(settings or load_settings(environ=os.environ)))
    settings = with_file_keys(engine.settings)
    tracing = open_tracing(settings, engine)
    forget_earlier_servers()
    app = FastAPI(
        title="everystep",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan(engine, tracing),
        middleware=[
            Middleware(RequestScope, tracing=tracing),
            Middleware(ApiKeys, settings=settings, pages={"/": live_page(), "/docs": docs_document()}),
            Middleware(BodyLimit, max_bytes=int(settings.max_body_mib * 2**20)),
        ],
        dependencies=[Depends(check_query_keys)],
        exception_handlers=_handlers(),
        responses={status: {"model": ErrorReply} for status in ERROR_STATUSES},
        docs_url=None,  # our own: the framework's page asks another host for its parts
        redoc_url=None,
        telemetry=NO_TELEMETRY,
        redirect_slashes=False,
    )
    app.state.engine, app.state.tracing = engine, tracing
    for router in _routers(engine):
        app.include_router(router)
    guard_plain_routes(app)
    app.openapi = describe(app, engine)  # type: ignore[method-assign]
    return app


def _routers(engine: EngineClient) -> list[APIRouter]:
    rooms: list[Any] = [
        native,
        openai_completions,
        openai_chat,
        openai_models,
        tokens,
        trying,
        observability,
        engine_facts,
        figures,
    ]
    return [page.router(), docs_page.router(), *(room.router(engine) for room in rooms)]


def _handlers() -> dict[Any, Any]:
    return {
        EverystepError: on_error,
        RequestValidationError: error_replies.on_malformed,
        HTTPException: error_replies.on_http_error,
        RecursionError: error_replies.on_recursion,
    }


def _lifespan(engine: EngineClient, tracing: Tracing | None) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.close()
            if tracing is not None:
                await tracing.close()

    return lifespan
