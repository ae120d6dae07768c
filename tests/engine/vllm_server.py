"""A server that speaks as ``vllm serve`` does, without a model, on a port of its own.

Owns its replies.  It counts up from the prompt's last token; a test says how it behaves.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from engine.vllm_stand_in import FIRST_TOKEN, NUM_TOKENS

MAX_MODEL_LEN = 512


class VllmServer:
    """``mode``: how it answers the next completion; ``gate`` holds streams back after their first token."""

    def __init__(self, tokenizer_file: str) -> None:
        self.tokenizer = Tokenizer.from_file(tokenizer_file)
        self.bodies: list[dict[str, Any]] = []
        self.mode = "well"
        self.num_running = 0
        self.api_key: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()
        return f"http://{host}:{port}"

    async def start(self) -> None:
        routes = [
            Route("/v1/models", self._models),
            Route("/metrics", self._metrics),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self.socket]))

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        self.socket.close()

    async def _models(self, request: Request) -> Response:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        return JSONResponse({"object": "list", "data": [{"id": "theirs", "max_model_len": MAX_MODEL_LEN}]})

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(f'vllm:num_requests_running{{engine="0"}} {self.num_running}.0\n')

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        ids = self.tokenizer.encode(body["prompt"], add_special_tokens=False).ids
        return JSONResponse({"tokens": [*ids, 1] if self.mode == "another model" else ids})

    async def _completions(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        statuses = {"refuse": 400, "full": 503, "broken": 500}
        if status := statuses.get(self.mode):
            return JSONResponse({"error": {"message": f"it is {self.mode}", "code": status}}, status_code=status)
        return StreamingResponse(self._stream(body), media_type="text/event-stream")

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[str]:
        self.num_running += 1
        try:
            for i in range(body["max_tokens"]):
                token_id = FIRST_TOKEN + (body["prompt"][-1] + i) % NUM_TOKENS
                is_last = i + 1 == body["max_tokens"]
                choice = {"index": 0, "text": "x", "finish_reason": "length" if is_last else None}
                ids = {} if self.mode == "no ids" else {"token_ids": [token_id]}
                yield f"data: {json.dumps({'choices': [choice | ids]})}\n\n"
                await self.gate.wait()
                if self.mode == "cut":
                    raise ConnectionResetError("the test said so")
                if self.mode == "stop early":
                    break
                if self.mode == "error later":
                    yield 'data: {"error": {"message": "it broke", "code": 500}}\n\n'
                    break
            yield "data: [DONE]\n\n"
        finally:
            self.num_running -= 1


@asynccontextmanager
async def vllm_server(tokenizer_file: str) -> AsyncIterator[VllmServer]:
    server = VllmServer(tokenizer_file)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
