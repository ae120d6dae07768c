"""``POST /try``: many prompts at once, each with its own most tokens, as one stream.

Owns the body and the events of that route.  It is what the live page sends: a browser opens six connections to a
server at most, so 64 prompts that are to arrive together, and to end at different times, need one request.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response
from pydantic import Field
from sse_starlette import EventSourceResponse

from everystep.api.first_fault import AtFirst
from everystep.api.generations import Ours, submit
from everystep.api.json_bodies import JsonRoute
from everystep.api.native_bodies import TIMEOUT_WORDS, Body, Priority, TimeoutS
from everystep.api.params import as_seed
from everystep.api.prompts import read_texts
from everystep.api.ranges import MaxTokens, Seed, Temperature
from everystep.api.sse import EventStream
from everystep.engine.client import EngineClient
from everystep.messages import Delta
from everystep.sampling_params import SamplingParams

DONE = b"event: done\ndata: {}\n\n"
encode = msgspec.json.encode


class TriedPrompt(Body):
    """One of them."""

    prompt: str
    max_tokens: MaxTokens = Field(description="most tokens generated")


class TryBody(Body):
    """``/try``."""

    prompts: Annotated[list[TriedPrompt], AtFirst()] = Field(min_length=1)
    policy: str | None = Field(None, description="a lane of this server; null: the default lane")
    temperature: Temperature = Field(0.0, description="0 is greedy")
    seed: Seed | None = Field(None, description="same seed, same texts")
    ignore_eos: bool = Field(False, description="go on behind the end of the text")
    priority: Priority = 0
    timeout_s: TimeoutS | None = Field(None, description=TIMEOUT_WORDS)


def router(engine: EngineClient) -> APIRouter:
    """The route, for one engine."""
    routes = APIRouter(route_class=JsonRoute, tags=["page"])

    @routes.post(
        "/try",
        response_class=EventSourceResponse,
        summary="Continue many prompts at once, each to its own length, as one stream",
        response_description='events `data: {"index": int, "text": str, "tokens": int, "finish": str}`, then `done`',
    )
    async def try_prompts(request: Request, body: TryBody) -> Response:
        lane = engine.lane(body.policy, engine.settings.default_policy)
        prompts = await read_texts(engine, [one.prompt for one in body.prompts])
        limits = tuple(one.max_tokens for one in body.prompts)
        params = SamplingParams(
            max_tokens=max(limits), temperature=body.temperature, seed=as_seed(body.seed), ignore_eos=body.ignore_eos
        )
        ours = Ours(lane, body.priority, body.timeout_s)
        generation = submit(engine, request, prompts, params, ours, prefix="try-", max_tokens=limits)
        return EventStream(request, engine, generation, IndexedEvents())

    return routes


class IndexedEvents:
    """Deltas by the index of their prompt; ``tokens`` counts those that came with the text."""

    def of(self, delta: Delta) -> bytes:
        """One event each; its text is empty while a character is incomplete."""
        reason = delta.finish_reason.value if delta.finish_reason else None
        told = {"index": delta.index, "text": delta.text, "tokens": len(delta.tokens), "finish": reason}
        return b"data: " + encode(told) + b"\n\n"

    def end(self) -> bytes:
        """All have ended, and none by a failure: that is an event of its own."""
        return DONE
