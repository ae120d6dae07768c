"""What can never fit is refused at once, with the numbers, on every endpoint; what just fits is served to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from api.harness import Server, ids_of, serving

CONTEXT = 64
LANES = ("static", "per_token", "continuous")
Body = Callable[[str, int], dict[str, Any]]  # (text, max_tokens) → body
BODIES: dict[str, tuple[str, Body]] = {
    "basic_generate": ("/basic_generate", lambda text, n: {"prompt": text, "max_tokens": n}),
    "generate": ("/generate", lambda text, n: {"prompts": ["x", text], "max_tokens": n}),
    "generate_stream": ("/generate_stream", lambda text, n: {"prompt": text, "max_tokens": n}),
    "completions": ("/v1/completions", lambda text, n: {"model": "tiny", "prompt": text, "n": 2, "max_tokens": n}),
    "completions, streamed": (
        "/v1/completions",
        lambda text, n: {"model": "tiny", "prompt": [text, "x"], "stream": True, "max_tokens": n},
    ),
    "ids": ("/v1/completions", lambda text, n: {"model": "tiny", "prompt": [ids_of(text)], "max_tokens": n}),
    "chat": (
        "/v1/chat/completions",
        lambda text, n: {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": n},
    ),
}


def num_tokens(server: Server, name: str, text: str) -> int:
    if name == "chat":
        message = {"role": "user", "content": text}
        return len(server.engine.tokenizer.encode_chat([message], now=datetime(2026, 1, 1)))
    return len(ids_of(text))


def text_of(server: Server, name: str, wanted: int) -> str:
    """A text that makes a prompt of exactly so many tokens."""
    text = "q"
    while num_tokens(server, name, text) < wanted:
        text += "zq" if num_tokens(server, name, text + "zq") <= wanted else "z"
    assert num_tokens(server, name, text) == wanted
    return text


@pytest.mark.parametrize("name", BODIES)
async def test_a_prompt_that_leaves_room_for_one_token_is_served_and_one_that_fills_the_context_is_not(
    name: str,
) -> None:
    path, body = BODIES[name]
    async with serving(max_model_len=CONTEXT) as server:
        reply = await server.post(path, **body(text_of(server, name, CONTEXT - 1), 1), ignore_eos=True)
        assert reply.status_code == 200
        assert "error" not in reply.text
        reply = await server.post(path, **body(text_of(server, name, CONTEXT), 1))
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "prompt_too_long")
        assert f"has {CONTEXT} tokens; the context holds {CONTEXT}, prompt and output" in reply.text
        reply = await server.post(path, **body(text_of(server, name, CONTEXT - 8), 9))
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "max_tokens")
        assert f"max_tokens=9 but the prompt leaves room for 8 of {CONTEXT}" in reply.text


@pytest.mark.parametrize("name", BODIES)
async def test_a_prompt_that_the_cache_never_holds_is_refused_at_once_and_the_largest_is_served(name: str) -> None:
    path, body = BODIES[name]
    async with serving(kv_cache_gib=2e-6) as server:
        info = server.engine.info
        cache = info.num_blocks * info.block_size
        assert CONTEXT <= cache < info.max_model_len
        server.runner.hold()
        reply = await server.post(path, **body(text_of(server, name, cache), 1))
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "prompt_too_long")
        assert f"has {cache} tokens; the KV cache holds {cache}, prompt and output (--kv-cache-gib)" in reply.text
        assert server.runner.num_steps == 0
        server.runner.release()
        reply = await server.post(path, **body(text_of(server, name, cache - 1), 1), ignore_eos=True)
        assert reply.status_code == 200
        assert "error" not in reply.text


@pytest.mark.parametrize("lane", LANES)
async def test_a_sequence_that_outgrows_the_cache_alone_ends_with_length_and_the_engine_lives(lane: str) -> None:
    async with serving(kv_cache_gib=2e-6) as server:
        info = server.engine.info
        cache, prompt = info.num_blocks * info.block_size, ids_of("abc")
        room = cache + 1 - len(prompt)  # the last token is drawn, but never computed
        for _ in range(2):
            reply = await server.complete([prompt], max_tokens=room + 30, ignore_eos=True, policy=lane)
            assert reply.json()["choices"][0]["finish_reason"] == "length"
            assert reply.json()["usage"]["completion_tokens"] == room


@pytest.mark.parametrize("lane", LANES)
async def test_sequences_that_outgrow_the_cache_together_all_end_as_they_would_alone(lane: str) -> None:
    prompts = [ids_of(text) for text in ("abc", "xyz", "hello", "q")]
    async with serving() as server:
        body = {"max_tokens": 100, "ignore_eos": True, "temperature": 0}
        alone = [(await server.complete([prompt], **body)).json()["choices"][0]["text"] for prompt in prompts]
    async with serving(kv_cache_gib=2e-6) as server:
        info = server.engine.info
        assert info.num_blocks * info.block_size < sum(map(len, prompts)) + 4 * 100
        together = await asyncio.gather(*(server.complete([prompt], **body, policy=lane) for prompt in prompts))
        assert [reply.json()["choices"][0]["text"] for reply in together] == alone
        if lane == "continuous":
            assert server.engine.observer.metrics.num_preemptions > 0
        assert server.engine.observer.metrics.num_ended[lane, "length"] == 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"prompts": ["x"] * 5}),
        ("/v1/completions", {"model": "tiny", "prompt": ["x"] * 5, "stream": True}),
        ("/v1/completions", {"model": "tiny", "prompt": [[1]] * 5}),
        ("/v1/completions", {"model": "tiny", "prompt": "x", "n": 5}),
        ("/v1/completions", {"model": "tiny", "prompt": ["x", "y", "z"], "n": 2}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "n": 5}),
    ],
)
async def test_more_sequences_than_the_line_ever_holds_are_refused_for_good_and_as_many_are_taken(
    path: str, body: dict[str, Any]
) -> None:
    num = 6 if body.get("n") == 2 else 5
    async with serving(max_queue=num - 1) as server:
        reply = await server.post(path, **body)
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request")
        assert str(num) in reply.text
        assert f"the line holds at most {num - 1} (--max-queue)" in reply.text
        assert "retry-after" not in reply.headers
    async with serving(max_queue=num) as server:
        reply = await server.post(path, **body, max_tokens=1)
        assert reply.status_code == 200


async def test_more_prompt_tokens_than_the_line_ever_holds_are_refused_for_good_and_as_many_are_taken() -> None:
    ids = ids_of("hello")
    for path, body in {
        "/generate": {"prompts": ["hello"] * 3},
        "/v1/completions": {"model": "tiny", "prompt": "hello", "n": 3},
    }.items():
        async with serving(max_queue_tokens=3 * len(ids) - 1) as server:
            reply = await server.post(path, **body)
            assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request")
            words = f"{3 * len(ids)} prompt tokens; the line holds at most {3 * len(ids) - 1} (--max-queue-tokens)"
            assert words in reply.text
        async with serving(max_queue_tokens=3 * len(ids)) as server:
            assert (await server.post(path, **body, max_tokens=1)).status_code == 200


async def test_a_request_is_taken_whole_or_refused_whole() -> None:
    async with serving(max_queue=6) as server:
        server.runner.hold()
        accepted, line = server.engine.observer.metrics.num_accepted, server.engine._requests.line
        seated = asyncio.create_task(server.post("/generate", prompts=list("abcd"), max_tokens=9))
        while accepted["static"] < 4 or len(line):
            await asyncio.sleep(0)
        waiting = asyncio.create_task(server.post("/generate", prompts=list("efgh"), max_tokens=1))
        while accepted["static"] < 8:
            await asyncio.sleep(0)
        assert len(line) == 4
        refused = await server.post("/generate", prompts=list("abcd"), max_tokens=1)
        assert refused.status_code == 429
        assert accepted["static"] == 8
        assert server.engine.observer.metrics.num_ended["static", "rejected"] == 4
        assert len(line) == 4
        server.runner.release()
        assert {(await task).status_code for task in (seated, waiting)} == {200}
        assert len(line) == 0
