"""The OpenAPI description, true of this server: its model's name, its lanes, and what each route answers with.

Owns what FastAPI can't know of routes that write their own replies: OpenAI's two kinds (whole and streamed), texts and
event streams.  Ignorant of how any of them is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from everystep.api.openai_bodies import NEUTRAL, UNDONE_WORDS
from everystep.api.params import MIN_SEED
from everystep.engine.client import EngineClient
from everystep.sampling_params import MAX_SEED

Json = dict[str, Any]
TEXT, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
EVENTS: Json = {}  # no schema says what is in a stream
GENERATION_ERRORS = ("429", "504")  # only where something is generated
STREAMS = ("/generate_stream", "/try", "/steps/stream")
TAGS = {  # in the order in which /docs has them
    "native": "Text from prompts, each through the lane of your choice",
    "openai": "The same as OpenAI's clients ask for it",
    "tokenizer": "Text to tokens and back",
    "observability": "What the server does, and did",
    "health": "For probes; these need no key",
    "page": "What the live page asks for",
}


def describe(app: FastAPI, engine: EngineClient) -> Callable[[], Json]:
    """For ``app.openapi``: kept once the engine is ready, and with it all that is to be told."""

    def openapi() -> Json:
        if app.openapi_schema is not None:
            return app.openapi_schema
        tags = [{"name": name, "description": words} for name, words in TAGS.items()]
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=tags
        )
        limits = _limits(engine)
        for schema in made["components"]["schemas"].values():
            _describe_fields(schema, engine, limits)
        _describe_content(made["components"]["schemas"])
        _describe_replies(made)
        if limits:
            app.openapi_schema = made
        return made

    return openapi


def _limits(engine: EngineClient) -> dict[str, int]:
    """Empty while the server starts."""
    info = engine.status.info
    if info is None:
        return {}
    return {"context": info.max_model_len, "last_id": engine.tokenizer.vocab_size - 1}


def _describe_fields(schema: Json, engine: EngineClient, limits: dict[str, int]) -> None:
    """Of bodies: what has few right values here, or a bound that the model sets."""
    fields = schema.get("properties", {})
    if "policy" in fields:
        fields["policy"]["anyOf"][0]["enum"] = list(engine.policies)
    if "model" in fields and ("messages" in fields or "prompt" in fields):
        fields["model"]["enum"] = [engine.settings.served_name]
    for name, field in fields.items():
        if field.get("description") == UNDONE_WORDS:
            field["enum"] = [None, *NEUTRAL.get(name, ())]
        if name == "stop":
            next(one for one in field["anyOf"] if one.get("type") == "array")["items"]["minLength"] = 1
        if name == "seed":  # FastAPI's own description has floats for limits
            _number_in(field).update(minimum=MIN_SEED, maximum=MAX_SEED)
        if limits and name in ("max_tokens", "max_completion_tokens", "min_tokens"):
            _number_in(field)["maximum"] = limits["context"] - 1
        if limits and name in ("prompt", "tokens"):
            for ids in _lists_of_ids(field):
                ids["items"] |= {"minimum": 0, "maximum": limits["last_id"]}
                ids["maxItems"] = limits["context"] - (name == "prompt")  # a prompt leaves room for a token


def _describe_content(schemas: dict[str, Json]) -> None:
    """Fields that a message may lack in OpenAI's API, where it has tool calls instead; here it can't."""
    part, message = schemas["ContentPart"], schemas["Message"]
    part["properties"] |= {"type": {"const": "text"}, "text": TEXT}
    part["required"] = ["type", "text"]
    message["properties"]["content"]["anyOf"] = message["properties"]["content"]["anyOf"][:2]
    message["required"] = ["role", "content"]


def _number_in(field: Json) -> Json:
    return next((one for one in field.get("anyOf", []) if one.get("type") == "integer"), field)


def _lists_of_ids(field: Json) -> Iterator[Json]:
    """Those that are a prompt, and those in a list of prompts."""
    for one in (field, *field.get("anyOf", [])):
        inner = one.get("items", {})
        if inner.get("type") == "integer":
            yield one
        elif inner.get("type") == "array":
            yield inner


def _describe_replies(made: Json) -> None:
    for path, method, operation in _operations(made):
        replies = operation["responses"]
        if path in STREAMS:
            replies["200"]["content"] = {"text/event-stream": EVENTS}
        if path in REPLIES:
            replies["200"]["content"] = {"application/json": {"schema": REPLIES[path]}}
        if path in ("/v1/completions", "/v1/chat/completions"):
            replies["200"]["content"]["text/event-stream"] = EVENTS
        if path == "/metrics":
            replies["200"]["content"] = {"text/plain": {"schema": TEXT}}
        if path.startswith("/health"):
            replies["503"] = {
                "description": "not now; the reason says why",
                "content": {"application/json": {"schema": HEALTH}},
            }
        if method == "get":
            for status in GENERATION_ERRORS:
                replies.pop(status, None)


def _operations(made: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _object(optional: tuple[str, ...] = (), /, **fields: Json) -> Json:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _list(item: Json) -> Json:
    return {"type": "array", "items": item}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


USAGE = _object(
    prompt_tokens=INTEGER,
    completion_tokens=INTEGER,
    total_tokens=INTEGER,
    prompt_tokens_details=_object(cached_tokens=INTEGER),
)
FINISH = {"enum": ["stop", "length"]}
ENTRY = {"token": TEXT, "logprob": NUMBER, "bytes": _list(INTEGER)}
CHAT_LOGPROBS = _object(content=_list(_object(**ENTRY, top_logprobs=_list(_object(**ENTRY)))))
TEXT_LOGPROBS = _object(
    tokens=_list(TEXT),
    token_logprobs=_list(NUMBER),
    top_logprobs=_list({"type": "object", "additionalProperties": NUMBER}),
    text_offset=_list(INTEGER),
)
MESSAGE = _object(role={"const": "assistant"}, content=TEXT, refusal={"type": "null"})


def _reply(kind: str, choice: Json) -> Json:
    return _object(id=TEXT, object={"const": kind}, created=INTEGER, model=TEXT, choices=_list(choice), usage=USAGE)


MODEL = _object(
    id=TEXT,
    object={"const": "model"},
    created=INTEGER,
    owned_by=TEXT,
    max_model_len=_or_null(INTEGER),
    suggested_sampling={"type": "object", "additionalProperties": NUMBER},
)
HEALTH = _object(("lanes",), status={"enum": ["ok", "unavailable"]}, reason=_or_null(TEXT), lanes={"type": "object"})
STEP = _object(
    step=INTEGER,
    policy=TEXT,
    start_s=NUMBER,
    end_s=NUMBER,
    shape=_list(INTEGER),
    rows=_list({"type": "object"}),
    waiting=_list({"type": "object"}),
    blocks_used=INTEGER,
    blocks_total=INTEGER,
) | {"additionalProperties": True}
QUANTILES = _or_null(_object(p50=NUMBER, p95=NUMBER, p99=NUMBER))
LANE_FIGURES = _object(
    state=_or_null(TEXT),
    seats=_or_null(INTEGER),
    num_running=INTEGER,
    num_waiting=INTEGER,
    tokens_per_s=NUMBER,
    requests_per_s=NUMBER,
    steps_per_s=NUMBER,
    ttft_s=QUANTILES,
    itl_s=QUANTILES,
    step_s=QUANTILES,
    seat_steps=_object(working=INTEGER, held=INTEGER, empty=INTEGER),
)
FIGURES = _object(
    server_id=TEXT,
    now_s=NUMBER,
    window_s=INTEGER,
    is_ready={"type": "boolean"},
    reason=TEXT,
    last_step=INTEGER,
    num_worker_restarts=INTEGER,
    blocks_used=INTEGER,
    blocks_total=INTEGER,
    totals=_object(
        prompt_tokens=INTEGER, generation_tokens=INTEGER, prefix_cache_hit_tokens=INTEGER, preemptions=INTEGER
    ),
    lanes={"type": "object", "additionalProperties": LANE_FIGURES},
)
REPLIES: dict[str, Json] = {
    "/v1/completions": _reply(
        "text_completion",
        _object(index=INTEGER, text=TEXT, logprobs=_or_null(TEXT_LOGPROBS), finish_reason=FINISH),
    ),
    "/v1/chat/completions": _reply(
        "chat.completion",
        _object(index=INTEGER, message=MESSAGE, logprobs=_or_null(CHAT_LOGPROBS), finish_reason=FINISH),
    ),
    "/v1/models": _object(object={"const": "list"}, data=_list(MODEL)),
    "/v1/models/{name}": MODEL,
    "/health": HEALTH,
    "/health/live": HEALTH,
    "/health/ready": HEALTH,
    "/steps": _object(steps=_list(STEP), next=INTEGER),
    "/steps/trace": {"type": "object"},
    "/engine": {"type": "object"},
    "/figures": FIGURES,
}
