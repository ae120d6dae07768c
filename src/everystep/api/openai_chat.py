"""``/v1/chat/completions``.

Owns its replies, whole and streamed.  Thin: messages, parameters, chunks and errors are others' rooms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.requests import Request
from fastapi.responses import Response

from everystep.api.answers import Answer, num_shown, whole_answers
from everystep.api.generations import Ours, submit
from everystep.api.json_bodies import JsonRoute, json_reply
from everystep.api.logprobs import chat_logprobs
from everystep.api.off_loop import off_loop_if_long
from everystep.api.openai_bodies import ChatBody, refuse_undone
from everystep.api.openai_chunks import Head, OpenAIChunks
from everystep.api.openai_models import check_model
from everystep.api.params import chat_params, room_for
from everystep.api.prompts import Prompt, read_chat
from everystep.api.sse import EventStream
from everystep.api.usage import usage_of
from everystep.engine.client import EngineClient
from everystep.errors import InvalidParameter
from everystep.sampling_params import SamplingParams

WHOLE = "chat.completion"
CHUNK = "chat.completion.chunk"
ROLE = b'"delta":{"role":"assistant","content":""}'


def router(engine: EngineClient) -> APIRouter:
    """The route, for one engine."""
    routes = APIRouter(route_class=JsonRoute, tags=["openai"])

    @routes.post("/v1/chat/completions", summary="Answer a chat, as OpenAI's API does")
    async def chat_completions(request: Request, body: ChatBody) -> Response:
        check_model(engine, body.model)
        refuse_undone(body)
        if body.stream_options is not None and not body.stream:
            raise InvalidParameter("stream_options needs stream=true", param="stream_options")
        lane = engine.lane(body.policy, engine.settings.default_policy)
        prompt = await read_chat(engine, body.messages, body.truncate_prompt_tokens)
        params = chat_params(body, room_for([prompt.ids], engine.max_model_len_of(lane)), engine.tokenizer.vocab_size)
        return await _answer(engine, request, body, prompt, params, lane)

    return routes


async def _answer(
    engine: EngineClient, request: Request, body: ChatBody, prompt: Prompt, params: SamplingParams, lane: str
) -> Response:
    ours = Ours(lane, body.priority or 0, body.timeout_s)
    generation = submit(engine, request, [prompt], params, ours, prefix="chatcmpl-")
    head = Head(generation.request_id, CHUNK if body.stream else WHOLE, engine.unix_s(), body.model)
    if body.stream:
        return EventStream(request, engine, generation, _chunks(engine, head, body, prompt, params))
    answers = await whole_answers(request, generation)
    return await off_loop_if_long(
        num_shown(params, answers), lambda: json_reply(_whole(engine, head, prompt, params, answers))
    )


def _whole(
    engine: EngineClient, head: Head, prompt: Prompt, params: SamplingParams, answers: Sequence[Answer]
) -> dict[str, Any]:
    usage = usage_of([len(prompt.ids)], params.n)
    choices = []
    for index, answer in enumerate(answers):
        usage.count(index, len(answer.tokens), answer.num_cached_tokens)
        logprobs = None if params.logprobs is None else chat_logprobs(engine.tokenizer, answer.tokens)
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choices.append(
            {"index": index, "message": message, "logprobs": logprobs, "finish_reason": answer.finish_reason}
        )
    return {**head.as_json(), "choices": choices, "usage": usage.as_json()}


def _chunks(engine: EngineClient, head: Head, body: ChatBody, prompt: Prompt, params: SamplingParams) -> OpenAIChunks:
    tokenizer = engine.tokenizer
    return OpenAIChunks(
        head,
        usage_of([len(prompt.ids)], params.n),
        content=(b'"delta":{"content":', b"}"),
        first=lambda index: ROLE,
        logprobs=None if params.logprobs is None else lambda index, tokens: chat_logprobs(tokenizer, tokens),
        is_usage_wanted=body.stream_options is not None and body.stream_options.include_usage,
    )
