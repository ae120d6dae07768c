"""Routes for looking: health, version, metrics, the step log as page, stream and trace, and a request's life.

Owns their shapes and bounds.  Ignorant of how the engine works, of who may call, and of how errors become replies.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
from collections.abc import AsyncIterator
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from everystep.api.sse import PING_S, EventResponse
from everystep.config import Settings
from everystep.errors import InvalidParameter, NotFound
from everystep.messages import EngineStatus
from everystep.observe.limits import Limits
from everystep.observe.metrics import CONTENT_TYPE
from everystep.observe.observer import Observer
from everystep.observe.processes import Processes
from everystep.observe.shared_steps import SharedSteps
from everystep.version import __version__

DEFAULT_LIMIT = 100
MAX_LIMIT = 1_000
MAX_LAG_STEPS = 256  # a live reader that falls further behind skips ahead
READ_STEPS = 16  # steps read from the log between two looks at how far behind the reader is

SINCE_RANGE = {"minimum": -1, "maximum": 2**63 - 1}  # shown; refused in our own words
LIMIT_RANGE = {"minimum": 1, "maximum": MAX_LIMIT}
Since = Annotated[int, Query(description="steps after this one; -1: from the oldest", json_schema_extra=SINCE_RANGE)]


class Watched(Protocol):
    """What these routes need of an engine."""

    observer: Observer
    settings: Settings

    @property
    def status(self) -> EngineStatus: ...

    @property
    def worker_pid(self) -> int | None: ...

    def now_s(self) -> float: ...

    async def wait_for_step(self, after: int) -> None: ...


def router(engine: Watched) -> APIRouter:
    """All routes of this module, for one engine."""
    routes = APIRouter()
    _add_health(routes, engine)
    _add_numbers(routes, engine)
    _add_steps(routes, engine)
    _add_step_downloads(routes, engine)
    return routes


def _add_health(routes: APIRouter, engine: Watched) -> None:
    @routes.get("/health/live", tags=["health"], summary="Whether the process should be left running")
    async def live() -> JSONResponse:
        status = engine.status
        return _health(status.is_live, status)

    @routes.get("/health", tags=["health"], summary="The same as /health/ready")
    @routes.get("/health/ready", tags=["health"], summary="Whether a request sent now would be served")
    async def ready() -> JSONResponse:
        status = engine.status
        return _health(status.is_ready, status)


def _health(is_well: bool, status: EngineStatus) -> JSONResponse:
    """A lane that another engine serves (vLLM) has a word of its own, and no say in the status."""
    lanes = {"lanes": status.lanes} if status.lanes else {}
    if is_well:
        return JSONResponse({"status": "ok", "reason": None, **lanes})
    return JSONResponse({"status": "unavailable", "reason": status.reason, **lanes}, status_code=503)


def _add_numbers(routes: APIRouter, engine: Watched) -> None:
    @routes.get("/version", tags=["observability"], summary="What serves")
    async def version() -> dict[str, str | None]:
        return _version(engine.status)

    @routes.get("/metrics", tags=["observability"], summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        # On the event loop, where the observer is told: a scrape sees no half-told change.
        status = engine.status
        processes = Processes({"server": os.getpid(), "worker": engine.worker_pid})
        also = (Limits(engine.settings, status.info), processes)
        text = engine.observer.metrics.render(status, __version__, engine.now_s(), also)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    @routes.get("/requests/{request_id}", tags=["observability"], summary="One request's life")
    async def request_life(request_id: str) -> dict[str, Any]:
        snapshot = engine.observer.requests.snapshot(request_id)
        if snapshot is None:
            num = engine.observer.requests.max_requests
            raise NotFound(f"no request {request_id!r} among the last {num}; its id stands in X-Generation-Id")
        return await asyncio.to_thread(snapshot.tell, engine.now_s())


def _version(status: EngineStatus) -> dict[str, str | None]:
    info = status.info
    versions = {
        "everystep": __version__,
        "python": platform.python_version(),
        "model": info.model if info else None,
        "runner": info.runner if info else None,
        "precision": info.precision if info else None,
    }
    if info and info.runner == "openvino":
        versions["openvino"] = importlib.metadata.version("openvino")
    return versions


def _add_steps(routes: APIRouter, engine: Watched) -> None:
    @routes.get("/steps", tags=["observability"], summary="The step log after a step")
    async def steps(
        since: Since = -1,
        limit: Annotated[int, Query(description="most steps returned", json_schema_extra=LIMIT_RANGE)] = DEFAULT_LIMIT,
    ) -> StreamingResponse:
        _check_since(since)
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidParameter(f"limit={limit!r:.40} must be from 1 to {MAX_LIMIT}", param="limit")
        page = engine.observer.step_log.since_as_json(since, limit)
        return StreamingResponse(page, media_type="application/json")


def _add_step_downloads(routes: APIRouter, engine: Watched) -> None:
    shared = SharedSteps(engine.observer.step_log)

    @routes.get("/steps/stream", tags=["observability"], summary="The step log, live, as server-sent events")
    async def stream(
        since: Annotated[int | None, Query(description="steps after this one (default: from now on)")] = None,
        last_event_id: Annotated[int | None, Header(description="where a client that reconnects had got to")] = None,
    ) -> EventResponse:
        after = last_event_id if last_event_id is not None else since
        if after is not None:
            _check_since(after)
        return EventResponse(live_steps(engine, shared, after), ping=PING_S, sep="\n")

    @routes.get("/steps/trace", tags=["observability"], summary="The step log as Chrome trace-event JSON (Perfetto)")
    async def trace() -> StreamingResponse:
        headers = {"content-disposition": 'attachment; filename="everystep-trace.json"'}
        return StreamingResponse(engine.observer.step_log.trace(), media_type="application/json", headers=headers)


def _check_since(since: int) -> None:
    if not -1 <= since <= SINCE_RANGE["maximum"]:
        raise InvalidParameter(f"since={since!r:.40} must be a step's number, or -1", param="since")


async def live_steps(engine: Watched, shared: SharedSteps, since: int | None) -> AsyncIterator[bytes]:
    """Steps after ``since`` (``None``: from now on) for ever, each a whole event, as fast as the client takes them.

    They are read from the ring, the newest by way of what all readers share; nothing is queued for a slow client.
    Steps that the ring has lost meanwhile, or that would leave a reader who had caught up more than
    :data:`MAX_LAG_STEPS` behind, are passed over with an event ``skipped`` that says which.
    """
    log = engine.observer.step_log
    after = log.last_step if since is None else min(since, log.last_step)
    has_caught_up = False
    while True:
        await engine.wait_for_step(after)
        first_lost = after + 1
        if log.first_step is not None:
            after = max(after, log.first_step - 1)
        if has_caught_up:
            after = max(after, log.last_step - MAX_LAG_STEPS)
        if first_lost <= after:
            yield b'event: skipped\ndata: {"first":%d,"last":%d}\n\n' % (first_lost, after)
        newest = log.last_step  # the log moves on while the client takes what is yielded
        for number, step in shared.after(after, READ_STEPS):
            after = number
            yield b"id: %d\ndata: %b\n\n" % (number, step)
        has_caught_up = has_caught_up or after >= newest
