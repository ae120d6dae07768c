"""An application in process on a real model, the tiny Llama in f32: what a test asks shows in what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from api.harness import MODEL
from everystep.api import create_app
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.messages import GenerationRequest


@dataclass
class Asked:
    """An application on a real model; it notes which lane and priority the engine was asked for."""

    http: httpx.AsyncClient
    requests: list[GenerationRequest]

    async def shown(self, path: str, body: dict[str, Any]) -> tuple[Any, ...]:
        """All that a request lets its client see, but its id and date; and what the engine was asked for."""
        self.requests.clear()
        reply = await self.http.post(path, json=body)
        asked = [(request.policy, request.priority) for request in self.requests]
        return reply.status_code, reply.headers["content-type"], _without_ids(reply.text), asked


def _without_ids(text: str) -> list[Any]:
    """Every JSON value of the reply; names that no two requests share left out."""

    def plain(value: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in value.items() if name not in ("id", "created", "sequence_id")}

    blocks = [block.removeprefix("data: ") for block in text.split("\n\n") if block and not block.startswith(":")]
    return [json.loads(block, object_hook=plain) if block.startswith("{") else block for block in blocks]


@asynccontextmanager
async def asking(tmp_path: Any) -> AsyncIterator[Asked]:
    settings = Settings(
        model=str(MODEL), served_model_name="tiny", runner="openvino", precision="f32", threads=1, cache_dir=tmp_path,
        kv_cache_gib=0.01, prefix_cache=False, drain_timeout=0,
    )  # fmt: skip
    engine = EngineClient.in_process(settings)
    requests: list[GenerationRequest] = []
    take_in = engine.submit

    def noted(request: GenerationRequest) -> Any:
        requests.append(request)
        return take_in(request)

    engine.submit = noted  # type: ignore[method-assign]
    app = create_app(engine=engine)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        await engine.wait_ready()
        yield Asked(http, requests)
