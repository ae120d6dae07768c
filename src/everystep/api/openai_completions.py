"""``/v1/completions``.

Owns its replies, whole and streamed.  Thin: prompts, parameters, chunks and errors are others' rooms.
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
from everystep.api.logprobs import CompletionLogprobs
from everystep.api.off_loop import off_loop_if_long
from everystep.api.openai_bodies import CompletionBody, refuse_undone
from everystep.api.openai_chunks import Head, OpenAIChunks, encode
from everystep.api.openai_models import check_model
from everystep.api.params import completion_params, room_for
from everystep.api.prompts import Prompt, read_prompts
from everystep.api.request_scope import name_generation
from everystep.api.sse import EventStream
from everystep.api.usage import usage_of
from everystep.engine.client import EngineClient
from everystep.errors import InvalidParameter, UnsupportedOption
from everystep.sampling_params import SamplingParams

KIND = "text_completion"
PREFIX = "cmpl-"


def router(engine: EngineClient) -> APIRouter:
    """The route, for one engine."""
    routes = APIRouter(route_class=JsonRoute, tags=["openai"])

    @routes.post("/v1/completions", summary="Continue prompts, as OpenAI's API does")
    async def completions(request: Request, body: CompletionBody) -> Response:
        _check(engine, body)
        lane = engine.lane(body.policy, engine.settings.default_policy)
        prompts = await read_prompts(engine, body.prompt, body.truncate_prompt_tokens, wants_text=bool(body.echo))
        room = room_for([prompt.ids for prompt in prompts], engine.max_model_len_of(lane))
        params = completion_params(body, room, engine.tokenizer.vocab_size)
        if params.max_tokens == 0:
            return _echo_alone(engine, request, body, prompts, params)
        return await _generate(engine, request, body, prompts, params, lane)

    return routes


def _check(engine: EngineClient, body: CompletionBody) -> None:
    check_model(engine, body.model)
    refuse_undone(body)
    if body.echo and body.logprobs is not None:
        raise UnsupportedOption("logprobs of an echoed prompt aren't supported", param="logprobs")
    if body.stream_options is not None and not body.stream:
        raise InvalidParameter("stream_options needs stream=true", param="stream_options")
    if body.max_tokens == 0 and (body.stream or not body.echo):
        raise InvalidParameter("max_tokens=0 generates nothing; it needs echo=true and no stream", param="max_tokens")


def _echo_alone(
    engine: EngineClient, request: Request, body: CompletionBody, prompts: Sequence[Prompt], params: SamplingParams
) -> Response:
    """What ``max_tokens=0`` asks for: the prompt, and how many tokens it has.  The engine isn't troubled."""
    answers = [Answer(finish_reason="length") for _ in range(len(prompts) * params.n)]
    head = _head(engine, body, name_generation(request.scope, PREFIX))
    return json_reply(_whole(engine, head, body, prompts, params, answers))


async def _generate(
    engine: EngineClient,
    request: Request,
    body: CompletionBody,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    lane: str,
) -> Response:
    ours = Ours(lane, body.priority or 0, body.timeout_s)
    generation = submit(engine, request, prompts, params, ours, prefix=PREFIX)
    head = _head(engine, body, generation.request_id)
    if body.stream:
        return EventStream(request, engine, generation, _chunks(engine, head, body, prompts, params))
    answers = await whole_answers(request, generation)
    return await off_loop_if_long(
        num_shown(params, answers), lambda: json_reply(_whole(engine, head, body, prompts, params, answers))
    )


def _head(engine: EngineClient, body: CompletionBody, reply_id: str) -> Head:
    return Head(reply_id, KIND, engine.unix_s(), body.model)


def _whole(
    engine: EngineClient,
    head: Head,
    body: CompletionBody,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    answers: Sequence[Answer],
) -> dict[str, Any]:
    usage = usage_of([len(prompt.ids) for prompt in prompts], params.n)
    choices = []
    for index, answer in enumerate(answers):
        usage.count(index, len(answer.tokens), answer.num_cached_tokens)
        echo = prompts[index // params.n].text if body.echo else ""
        logprobs = None if params.logprobs is None else CompletionLogprobs(engine.tokenizer).of(answer.tokens)
        choices.append(
            {"index": index, "text": echo + answer.text, "logprobs": logprobs, "finish_reason": answer.finish_reason}
        )
    return {**head.as_json(), "choices": choices, "usage": usage.as_json()}


def _chunks(
    engine: EngineClient, head: Head, body: CompletionBody, prompts: Sequence[Prompt], params: SamplingParams
) -> OpenAIChunks:
    lists = [CompletionLogprobs(engine.tokenizer) for _ in range(len(prompts) * params.n)]
    return OpenAIChunks(
        head,
        usage_of([len(prompt.ids) for prompt in prompts], params.n),
        content=(b'"text":', b""),
        first=lambda index: b'"text":' + encode(prompts[index // params.n].text) if body.echo else b"",
        logprobs=None if params.logprobs is None else lambda index, tokens: lists[index].of(tokens),
        is_usage_wanted=body.stream_options is not None and body.stream_options.include_usage,
    )
