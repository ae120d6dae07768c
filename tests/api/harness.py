"""A real engine in process, a scripted model, and clients that may leave when the test says.

The model's tokenizer is the tiny Llama's of the golden data: byte-level, so any text can be scripted.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from tokenizers import Tokenizer

from everystep.api import create_app
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.runner.fake import FakeRunner
from everystep.types import Row, Sequence, StepPlan, StepResult

MODEL = Path(__file__).parents[1] / "golden" / "tiny" / "llama"
TOKENIZER = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
VOCAB_SIZE = 384
EOS_ID = 2  # <|im_end|>
FOREVER = 400  # tokens: more than any test waits for


def ids_of(text: str) -> list[int]:
    """The reference for what a prompt is: the tokenizers library itself."""
    return TOKENIZER.encode(text, add_special_tokens=False).ids


class ScriptedRunner(FakeRunner):
    """Says what the test wrote for a prompt, then ends; other prompts get the fake model's hash.

    ``hold()`` makes it wait before each step for ``allow(n)``; ``release()`` ends that.
    """

    def __init__(self) -> None:
        super().__init__(vocab_size=VOCAB_SIZE)
        self.answers: dict[tuple[int, ...], list[int]] = {}
        self.seen: dict[str, Sequence] = {}
        self.num_steps_of: dict[str, int] = {}
        self._gate: threading.Semaphore | None = None

    def say(self, prompt: str, text: str) -> None:
        self.answers[tuple(ids_of(prompt))] = [*ids_of(text), EOS_ID]

    def hold(self) -> None:
        self._gate = threading.Semaphore(0)

    def allow(self, num_steps: int) -> None:
        assert self._gate is not None
        self._gate.release(num_steps)

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release(1000)

    def run(self, plan: StepPlan) -> StepResult:
        if self._gate is not None:
            self._gate.acquire()
        for row in plan.rows:
            self.seen[row.sequence.sequence_id] = row.sequence
            self.num_steps_of[row.sequence.sequence_id] = self.num_steps_of.get(row.sequence.sequence_id, 0) + 1
        return super().run(plan)

    def _draw(self, row: Row) -> int:
        sequence = row.sequence
        answer = self.answers.get(tuple(sequence.token_ids[: sequence.num_prompt_tokens]), [])
        if sequence.num_output_tokens < len(answer):
            return answer[sequence.num_output_tokens]
        return super()._draw(row)

    @property
    def last_seen(self) -> Sequence:
        return list(self.seen.values())[-1]


@dataclass
class Server:
    """The application, its engine and its model, with a client that speaks ASGI."""

    app: FastAPI
    engine: EngineClient
    runner: ScriptedRunner
    http: httpx.AsyncClient

    async def run_steps(self, num_steps: int) -> None:
        """Let a model that is held make this many steps, as soon as it has work for them."""
        last = self.engine.observer.step_log.last_step
        self.runner.allow(num_steps)
        await self.engine.wait_for_step(last + num_steps - 1)

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def complete(self, prompt: Any, **body: Any) -> httpx.Response:
        return await self.post("/v1/completions", model="tiny", prompt=prompt, **body)

    async def chat(self, content: Any, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return await self.post("/v1/chat/completions", model="tiny", messages=messages, **body)


def tiny_settings(**settings: Any) -> Settings:
    return Settings(**{"model": str(MODEL), "served_model_name": "tiny", "kv_cache_gib": 0.001, **settings})


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Server]:
    """A ready server."""
    runner = ScriptedRunner()
    engine = EngineClient.in_process(tiny_settings(**{"drain_timeout": 0, **settings}), lambda: runner)
    app = create_app(engine=engine)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tiny") as http,
    ):
        await engine.wait_ready()
        try:
            yield Server(app, engine, runner, http)
        finally:
            runner.release()


@dataclass
class Call:
    """One HTTP request spoken to the application directly: the client leaves when the test says."""

    app: FastAPI
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    received: bytes = b""

    def __post_init__(self) -> None:
        self._has_left = asyncio.Event()
        self._news = asyncio.Condition()
        self._is_body_sent = False
        self.task = asyncio.create_task(self.app(self._scope(), self._receive, self._send))

    def leave(self) -> None:
        self._has_left.set()

    async def wait_for(self, part: bytes) -> None:
        """Until the reply holds ``part``."""
        async with self._news:
            await self._news.wait_for(lambda: part in self.received)

    def _scope(self) -> dict[str, Any]:
        named = {"content-type": "application/json", **self.headers}
        headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "server": ("tiny", 80),
            "client": ("somebody", 1),
        }

    async def _receive(self) -> dict[str, Any]:
        if not self._is_body_sent:
            self._is_body_sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        async with self._news:
            self.received += message.get("body", b"")
            self._news.notify_all()


def events(text: str) -> list[str]:
    """The data of each event, in order; comments aren't events."""
    return [block.removeprefix("data: ") for block in text.split("\n\n") if block and not block.startswith(":")]


def chunks(text: str) -> list[dict[str, Any]]:
    """OpenAI's chunks; the stream must end with its mark."""
    *data, done = events(text)
    assert done == "[DONE]"
    return [json.loads(item) for item in data]
