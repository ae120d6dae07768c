"""``/v1/models``, and the check that a request names the model that is served.

Owns the one name there is.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from everystep.api.json_bodies import json_reply
from everystep.engine.client import EngineClient
from everystep.errors import NotFound


class ModelNotFound(NotFound):
    """No such model here."""


def check_model(engine: EngineClient, name: str) -> None:
    """Raise :class:`ModelNotFound` unless it is the served name."""
    served = engine.settings.served_name
    if name != served:
        raise ModelNotFound(f"the model {name!r:.200} isn't served here; {served!r} is", param="model")


def router(engine: EngineClient) -> APIRouter:
    """Both routes, for one engine."""
    routes = APIRouter(tags=["openai"])

    @routes.get("/v1/models", summary="The model that is served")
    async def models() -> Response:
        return json_reply({"object": "list", "data": [_card(engine)]})

    @routes.get("/v1/models/{name:path}", summary="The same, by name")
    async def model(name: str) -> Response:
        check_model(engine, name)
        return json_reply(_card(engine))

    return routes


def _card(engine: EngineClient) -> dict[str, Any]:
    info = engine.status.info
    return {
        "id": engine.settings.served_name,
        "object": "model",
        "created": round(engine.unix_s() - engine.now_s()),
        "owned_by": "everystep",
        "max_model_len": info.max_model_len if info else None,
        "suggested_sampling": engine.suggested_sampling,
    }
