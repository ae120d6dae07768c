"""``/figures``: the state of the server and what its last seconds were like, for whoever looks now.

Owns that reply: the live page and ``everystep top`` ask for it once a second.  It is answered while the worker is away.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query
from fastapi.responses import Response

from everystep.api.json_bodies import json_reply
from everystep.api.observability import Watched
from everystep.api.request_scope import fresh_hex
from everystep.errors import InvalidParameter
from everystep.observe.recent import MAX_WINDOW_S

DEFAULT_WINDOW_S = 10
WINDOW_RANGE = {"minimum": 1, "maximum": MAX_WINDOW_S}


class WithLanes(Watched, Protocol):
    """What this route needs of an engine."""

    @property
    def policies(self) -> tuple[str, ...]: ...


def router(engine: WithLanes) -> APIRouter:
    """The route, for one engine.  ``server_id`` tells a client that the server began anew, and its clock with it."""
    routes = APIRouter(tags=["observability"])
    server_id = fresh_hex(16)

    @routes.get("/figures", summary="State, rates and latencies of the last seconds, by lane")
    async def figures(
        window_s: Annotated[
            int, Query(description="seconds that rates and quantiles are of", json_schema_extra=WINDOW_RANGE)
        ] = DEFAULT_WINDOW_S,
    ) -> Response:
        if not 1 <= window_s <= MAX_WINDOW_S:
            raise InvalidParameter(f"window_s={window_s!r:.40} must be from 1 to {MAX_WINDOW_S}", param="window_s")
        return json_reply({"server_id": server_id, **_figures(engine, window_s)})

    return routes


def _figures(engine: WithLanes, window_s: int) -> dict[str, Any]:
    status, observer, now_s = engine.status, engine.observer, engine.now_s()
    metrics = observer.metrics
    running, waiting = metrics.num_open(seated=True), metrics.num_open(seated=False)
    return {
        "now_s": now_s,
        "window_s": window_s,
        "is_ready": status.is_ready,
        "reason": status.reason,
        "last_step": observer.step_log.last_step,
        "num_worker_restarts": metrics.num_worker_restarts,
        "blocks_used": metrics.blocks_used,
        "blocks_total": metrics.blocks_total,
        "totals": {
            "prompt_tokens": metrics.num_prompt_tokens,
            "generation_tokens": metrics.num_generation_tokens,
            "prefix_cache_hit_tokens": metrics.num_prefix_hit_tokens,
            "preemptions": metrics.num_preemptions,
        },
        "lanes": {
            policy: {
                "state": status.lanes.get(policy),
                "seats": status.info.seats.get(policy) if status.info else None,
                "num_running": running[policy],
                "num_waiting": waiting[policy],
                **observer.recent.figures(policy, now_s, window_s),
            }
            for policy in engine.policies
        },
    }
