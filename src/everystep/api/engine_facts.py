"""``/engine``: what the engine is ready with and the settings that decide its schedules.

Owns that reply: all that a simulation of this server needs beside the cost of a step.  ``now_s`` is the clock of the
step log, so that a client can set its own by it.
"""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from fastapi.responses import Response

from everystep.api.json_bodies import json_reply
from everystep.engine.client import EngineClient
from everystep.errors import EngineUnavailable

SCHEDULING = (
    "max_num_seqs", "max_num_batched_tokens", "prefix_cache", "static_batch_size", "static_max_batch_tokens",
    "static_max_wait", "per_token_batch_size", "per_token_max_batch_tokens", "ageing_s", "max_queue",
    "max_queue_tokens", "queue_timeout", "request_timeout",
)  # fmt: skip


def router(engine: EngineClient) -> APIRouter:
    """The route, for one engine."""
    routes = APIRouter(tags=["observability"])

    @routes.get("/engine", summary="What the engine is made of and how it schedules")
    async def engine_facts() -> Response:
        status = engine.status
        if status.info is None:
            raise EngineUnavailable(status.reason or "the engine isn't ready")
        settings = engine.settings.model_dump(mode="json", include=set(SCHEDULING))
        return json_reply({**asdict(status.info), "settings": settings, "now_s": engine.now_s()})

    return routes
