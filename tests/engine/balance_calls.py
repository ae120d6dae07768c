"""Requests of every endpoint and shape, spoken to the application directly, so that a client can leave when it likes.

Owns the shapes.  Ignorant of the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from api.harness import Call

PATHS = {
    "basic_generate": "/basic_generate",
    "generate": "/generate",
    "generate_stream": "/generate_stream",
    "completions": "/v1/completions",
    "completions, streamed": "/v1/completions",
    "chat": "/v1/chat/completions",
    "chat, streamed": "/v1/chat/completions",
}


@dataclass(frozen=True)
class Order:
    """A request: ``num_prompts`` prompts with ``n`` choices each, as far as the endpoint has such."""

    kind: str
    policy: str
    num_prompts: int
    n: int
    max_tokens: int
    priority: int = 0
    timeout_s: float | None = None
    is_too_long: bool = False

    @property
    def num_sequences(self) -> int:
        num_prompts = self.num_prompts if self.kind.startswith(("generate", "completions")) else 1
        num_prompts = 1 if self.kind == "generate_stream" else num_prompts
        return num_prompts * (self.n if self.kind.startswith(("completions", "chat")) else 1)

    def body(self) -> dict[str, Any]:
        text = "a" * 5_000 if self.is_too_long else "a text"
        texts = [f"{text} {i}" for i in range(self.num_prompts)]
        own: dict[str, Any] = {
            "basic_generate": {"prompt": texts[0]},
            "generate": {"prompts": texts},
            "generate_stream": {"prompt": texts[0]},
            "completions": {"prompt": texts},
            "chat": {"messages": [{"role": "user", "content": text}]},
        }[self.kind.partition(",")[0]]
        if self.kind.startswith(("completions", "chat")):
            own |= {"model": "tiny", "n": self.n, "stream": self.kind.endswith("streamed")}
        own |= {"policy": self.policy, "max_tokens": self.max_tokens, "priority": self.priority, "ignore_eos": True}
        return own if self.timeout_s is None else {**own, "timeout_s": self.timeout_s}


class Sent(Call):
    """An order under way.  ``generation_id`` is known once the reply has begun."""

    def __init__(self, app: FastAPI, order: Order) -> None:
        self.order = order
        self.generation_id: str | None = None
        super().__init__(app, PATHS[order.kind], json.dumps(order.body()).encode())

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.generation_id = headers.get("x-generation-id")
        await super()._send(message)
