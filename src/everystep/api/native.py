"""The four native endpoints.

Owns their lanes, their replies and their stream.  Thin: prompts, parameters, disconnects and errors are others' rooms.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse

from everystep.api.answers import whole_answers
from everystep.api.generations import Ours, submit
from everystep.api.json_bodies import JsonRoute, json_reply
from everystep.api.native_bodies import NativeOptions, PromptBody, PromptsBody, TextReply, TextsReply, VllmBody
from everystep.api.params import native_params, room_for
from everystep.api.prompts import Prompt, read_texts
from everystep.api.sse import EventStream
from everystep.engine.client import EngineClient, Generation
from everystep.engine.door import check_generates
from everystep.engine.vllm.launch import absent_words
from everystep.errors import EngineUnavailable
from everystep.messages import Delta

WHOLE_LANE = "static"
STREAM_LANE = "per_token"
VLLM_LANE = "vllm"


class VllmAbsent(EngineUnavailable):
    """vLLM isn't installed or not turned on; trying again won't help."""


def router(engine: EngineClient) -> APIRouter:
    """All routes of this module, for one engine."""
    routes = APIRouter(route_class=JsonRoute, tags=["native"])
    _add_whole(routes, engine)
    _add_stream(routes, engine)
    _add_vllm(routes, engine)
    return routes


def _add_whole(routes: APIRouter, engine: EngineClient) -> None:
    @routes.post("/basic_generate", response_model=TextReply, summary="Continue one prompt")
    async def basic_generate(request: Request, body: PromptBody) -> Response:
        lane = engine.lane(body.policy, WHOLE_LANE)
        return json_reply({"generated_text": (await _texts(engine, request, [body.prompt], body, lane))[0]})

    @routes.post("/generate", response_model=TextsReply, summary="Continue several prompts")
    async def generate(request: Request, body: PromptsBody) -> Response:
        lane = engine.lane(body.policy, WHOLE_LANE)
        texts = await _texts(engine, request, body.prompts, body, lane)
        return json_reply({"generated_texts": texts})


def _add_stream(routes: APIRouter, engine: EngineClient) -> None:
    @routes.post(
        "/generate_stream",
        response_class=EventSourceResponse,
        summary="Continue one prompt, token by token",
        response_description='events `data: {"token": str, "sequence_id": str}`; the tokens joined are the text',
    )
    async def generate_stream(request: Request, body: PromptBody) -> Response:
        lane = engine.lane(body.policy, STREAM_LANE)
        prompts = await read_texts(engine, [body.prompt])
        generation = _submit(engine, request, prompts, body, lane)
        echo = body.prompt if body.echo else ""
        return EventStream(request, engine, generation, TokenEvents(generation.sequence_ids, echo))


def _add_vllm(routes: APIRouter, engine: EngineClient) -> None:
    @routes.post("/generate_vllm", response_model=TextsReply, summary="Continue several prompts with vLLM")
    async def generate_vllm(request: Request, body: VllmBody) -> Response:
        if VLLM_LANE not in engine.policies:
            raise VllmAbsent(absent_words())
        engine.check_ready(VLLM_LANE)
        texts = await _texts(engine, request, body.prompts, body, VLLM_LANE)
        return json_reply({"generated_texts": texts})


async def _texts(
    engine: EngineClient, request: Request, texts: Sequence[str], body: NativeOptions, lane: str
) -> list[str]:
    if not texts:
        check_generates(native_params(body, room=1))  # a list of no prompts never comes to the door
        return []
    prompts = await read_texts(engine, texts)
    generation = _submit(engine, request, prompts, body, lane)
    answers = await whole_answers(request, generation)
    echoes = texts if body.echo else [""] * len(texts)
    return [echo + answer.text for echo, answer in zip(echoes, answers, strict=True)]


def _submit(
    engine: EngineClient, request: Request, prompts: Sequence[Prompt], body: NativeOptions, lane: str
) -> Generation:
    params = native_params(body, room_for([prompt.ids for prompt in prompts], engine.max_model_len_of(lane)))
    ours = Ours(lane, body.priority, body.timeout_s)
    return submit(engine, request, prompts, params, ours, prefix="gen-")


class TokenEvents:
    """Deltas as ``{"token", "sequence_id"}``.  A delta without text (half a character) waits for the next."""

    def __init__(self, sequence_ids: Sequence[str], echo: str) -> None:
        self._tails = [b',"sequence_id":' + msgspec.json.encode(name) + b"}\n\n" for name in sequence_ids]
        self._echoes = {index: echo for index in range(len(sequence_ids)) if echo}

    def of(self, delta: Delta) -> bytes:
        """One event; with the prompt's before it where it is wanted and hasn't been."""
        echo = self._echoes.pop(delta.index, "") if self._echoes else ""
        return self._event(delta.index, echo) + self._event(delta.index, delta.text)

    def end(self) -> bytes:
        """The end of the stream is its end: another event would be a token."""
        return b""

    def _event(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        return b'data: {"token":' + msgspec.json.encode(text) + self._tails[index]
