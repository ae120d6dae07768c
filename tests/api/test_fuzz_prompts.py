"""Fields of which OpenAPI can say little, fuzzed by hand: prompts of all forms, messages, stops, biases, the undone."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.harness import VOCAB_SIZE, Server
from everystep.api.openai_bodies import NEUTRAL

JSON = {"content-type": "application/json"}
texts = st.text(max_size=12) | st.sampled_from(["<|im_end|>", "\0", "\ufeff", "\u202e", "\U0010ffff"])
numbers = st.integers() | st.sampled_from([-1, 0, VOCAB_SIZE - 1, VOCAB_SIZE, 2**31, 2**63, 2**64, 10**300])
ids = st.integers(0, VOCAB_SIZE - 1)
odd = st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts
anything = st.recursive(
    odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
prompts = st.one_of(
    texts,
    st.lists(texts, max_size=4),
    st.lists(ids, max_size=6),
    st.lists(st.lists(ids, max_size=4), max_size=3),
    st.lists(odd, max_size=4),
    st.lists(st.lists(odd, max_size=3) | odd, max_size=3),
    anything,
)


def is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < VOCAB_SIZE


def is_prompt(value: object) -> bool:
    """By OpenAI's reference: a text, texts, ids or lists of ids; and each has a token."""
    if isinstance(value, str):
        return value != ""
    if not isinstance(value, list) or not value:
        return False
    kinds = {type(item) for item in value}
    if kinds == {str}:
        return all(value)
    if kinds == {list}:
        return all(item and all(map(is_id, item)) for item in value)
    return all(map(is_id, value))


parts = st.fixed_dictionaries({"type": st.just("text") | texts}, optional={"text": texts | odd, "image_url": anything})
contents = st.one_of(texts, st.lists(parts, max_size=3), anything)
roles = st.sampled_from(["system", "developer", "user", "assistant", "tool"]) | anything
messages = st.one_of(
    st.lists(
        st.fixed_dictionaries(
            {"role": roles, "content": contents}, optional={"name": texts | odd, "tool_calls": anything}
        ),
        max_size=4,
    ),
    anything,
)
others = st.fixed_dictionaries(
    {},
    optional={
        "stop": st.lists(texts, max_size=20) | anything,
        "logit_bias": st.dictionaries(numbers.map(str) | texts, st.floats(-200, 200) | odd, max_size=4) | anything,
        "seed": numbers | anything,
        "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans() | odd, "x": odd})
        | anything,
        "stream": st.booleans() | odd,
        "user": anything,
        **{name: anything | st.sampled_from(values) for name, values in NEUTRAL.items() if name in ("suffix",)},
    },
)
undone = st.fixed_dictionaries(
    {},
    optional={
        name: anything | (st.sampled_from(NEUTRAL[name]) if name in NEUTRAL else st.none())
        for name in ("response_format", "tools", "tool_choice", "modalities", "store", "metadata", "audio", "functions")
    },
)


def drawn(strategy: st.SearchStrategy[Any], num_examples: int) -> list[Any]:
    """Collected first and sent afterwards: Hypothesis knows no event loop."""
    found: list[Any] = []

    @settings(max_examples=num_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


async def send(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    reply = await server.http.post(path, content=json.dumps(body).encode(errors="replace"), headers=JSON)
    assert reply.status_code in (200, 400), (body, reply.text[:300])
    if reply.status_code == 400:
        assert reply.json()["error"].keys() == {"type", "message", "param", "code"}
    elif reply.headers["content-type"].startswith("text/event-stream"):
        assert reply.text.endswith("data: [DONE]\n\n")
        assert "event: error" not in reply.text
    return reply


async def try_prompts(server: Server, num_examples: int) -> None:
    outcomes = {200: 0, 400: 0}
    for value in drawn(prompts, num_examples):
        reply = await send(server, "/v1/completions", {"model": "tiny", "prompt": value, "max_tokens": 1})
        assert (reply.status_code == 200) is is_prompt(value), (value, reply.text)
        if reply.status_code == 400:
            assert reply.json()["error"]["param"] == "prompt"
        outcomes[reply.status_code] += 1
    assert min(outcomes.values()) > num_examples // 20, outcomes


async def try_fields(server: Server, num_examples: int) -> None:
    outcomes = {200: 0, 400: 0}
    chats = st.tuples(messages, others, undone)
    for wanted, some, more in drawn(chats, num_examples):
        body = {"model": "tiny", "max_tokens": 1, **some}
        for path, whole in (
            ("/v1/completions", {**body, "prompt": "x"}),
            ("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": "x"}]} | more),
            ("/v1/chat/completions", {"model": "tiny", "max_tokens": 1, "messages": wanted}),
        ):
            outcomes[(await send(server, path, whole)).status_code] += 1
    assert min(outcomes.values()) > num_examples // 20, outcomes


async def test_every_form_of_a_prompt_is_served_and_everything_else_refused(server: Server) -> None:
    await try_prompts(server, 150)
    assert (await server.complete("still", max_tokens=1)).status_code == 200


async def test_messages_and_free_fields_are_served_or_refused(server: Server) -> None:
    await try_fields(server, 80)
    assert (await server.complete("still", max_tokens=1)).status_code == 200


@pytest.mark.slow
async def test_every_form_of_a_prompt_is_served_and_everything_else_refused_many_times(server: Server) -> None:
    await try_prompts(server, 2000)


@pytest.mark.slow
async def test_messages_and_free_fields_are_served_or_refused_many_times(server: Server) -> None:
    await try_fields(server, 600)
