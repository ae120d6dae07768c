"""Deadlines over HTTP: a request's own, the server's, and that of the line; on every endpoint, streamed or not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import httpx
import openai
import pytest

from api.harness import FOREVER, Server, serving
from api.test_api_openai_client import MESSAGES, Served
from api.test_api_openai_client import served as served
from api.test_api_vllm import ready
from engine.vllm_stand_in import make_stand_in

ENDLESS = {"max_tokens": FOREVER, "ignore_eos": True}
WHOLE = {
    "/basic_generate": {"prompt": "x", **ENDLESS},
    "/generate": {"prompts": ["x", "y", "z", "u", "v", "w"], **ENDLESS},
    "/v1/completions": {"model": "tiny", "prompt": ["x", "y"], "n": 3, **ENDLESS},
    "/v1/chat/completions": {"model": "tiny", "messages": MESSAGES, "n": 2, **ENDLESS},
}
STREAMED = {
    "/generate_stream": {"prompt": "x", **ENDLESS},
    "/v1/completions": {"model": "tiny", "prompt": ["x", "y"], "n": 3, "stream": True, **ENDLESS},
    "/v1/chat/completions": {"model": "tiny", "messages": MESSAGES, "stream": True, **ENDLESS},
}
LANES = ("static", "per_token", "continuous")


@pytest.fixture
async def held() -> AsyncIterator[Server]:
    """A server whose model makes no step."""
    async with serving(static_batch_size=2, per_token_batch_size=2, max_num_seqs=2) as server:
        server.runner.hold()
        yield server


async def all_seats_are_free(server: Server) -> None:
    """The next request has the server to itself, and everybody before it ended once."""
    server.runner.release()
    for lane in LANES:
        await server.post("/basic_generate", prompt="next", max_tokens=1, policy=lane)
        step = (await server.http.get("/steps?limit=1000")).json()["steps"][-1]
        assert {row["sequence_id"] for row in step["rows"]} == {server.runner.last_seen.sequence_id}
        assert step["waiting"] == []
    metrics = server.engine.observer.metrics
    assert sum(metrics.num_accepted.values()) == sum(metrics.num_ended.values())


@pytest.mark.parametrize("path", WHOLE)
async def test_a_request_s_own_deadline_is_504_for_the_whole_of_it_in_every_lane(held: Server, path: str) -> None:
    for lane in LANES:
        reply = await held.post(path, **WHOLE[path], policy=lane, timeout_s=0.05)
        assert (reply.status_code, reply.json()["error"]["type"]) == (504, "request_timeout")
        assert reply.json()["error"]["message"] == "took longer than 0.05 s (timeout_s)"
    await all_seats_are_free(held)


@pytest.mark.parametrize("path", STREAMED)
async def test_a_deadline_that_passes_in_a_stream_that_has_begun_is_an_error_event_and_the_end(
    held: Server, path: str
) -> None:
    stream = asyncio.create_task(held.post(path, **STREAMED[path], timeout_s=1.0))
    await held.run_steps(1)
    reply = await stream
    assert reply.status_code == 200
    kind, data = reply.text.rstrip("\n").split("\n\n")[-1].split("\n")
    assert kind == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert (error["type"], error["message"]) == ("request_timeout", "took longer than 1 s (timeout_s)")
    assert "[DONE]" not in reply.text
    await all_seats_are_free(held)


async def test_a_list_of_which_one_choice_is_done_is_an_error_as_a_whole(held: Server) -> None:
    held.runner.say("short", "a")
    task = asyncio.create_task(
        held.post("/generate", prompts=["short", "y"], max_tokens=FOREVER, policy="continuous", timeout_s=1.0)
    )
    await held.run_steps(2)
    assert held.engine.observer.metrics.num_ended["continuous", "stop"] == 1
    reply = await task
    assert (reply.status_code, list(reply.json())) == (504, ["error"])
    await all_seats_are_free(held)


@pytest.mark.parametrize("path", WHOLE)
async def test_a_deadline_beyond_the_server_s_own_is_refused_with_value_and_limit(path: str) -> None:
    async with serving(request_timeout=5.0) as server:
        reply = await server.post(path, **WHOLE[path], timeout_s=5.5)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "timeout_s")
        assert "timeout_s=5.5 is above the server's own 5 (--request-timeout)" in reply.json()["error"]["message"]
        assert server.runner.num_steps == 0


async def test_a_deadline_that_is_no_time_is_refused_by_name(server: Server) -> None:
    values = ["0", "-1", "1e999", "NaN", '"1"', "true", "[1]", "1" * 400]
    for value, (path, body) in product(values, {**WHOLE, **STREAMED}.items()):
        content = json.dumps(body)[:-1] + f', "timeout_s": {value}}}'
        reply = await server.http.post(path, content=content, headers={"content-type": "application/json"})
        assert reply.status_code == (400 if path.startswith("/v1/") else 422), (path, value, reply.text)
        if value not in ("NaN", "1e999", "1" * 400):  # no JSON of ours
            assert reply.json()["error"]["param"] == "timeout_s"


async def test_no_deadline_at_all_is_null_or_absent_and_a_century_is_one_too(server: Server) -> None:
    for value in (None, 3e9, 1e300, 2**53):
        reply = await server.post("/basic_generate", prompt="x", max_tokens=2, timeout_s=value)
        assert reply.status_code == 200


async def test_a_whole_line_that_waits_too_long_is_503_each_with_a_time_to_come_again() -> None:
    async with serving(queue_timeout=0.05, static_batch_size=2) as server:
        server.runner.hold()
        seated = asyncio.create_task(server.post("/generate", prompts=list("abcd"), max_tokens=2, ignore_eos=True))
        await server.run_steps(1)
        for path, body in {**WHOLE, **STREAMED}.items():
            reply = await server.post(path, **body, policy="static")
            error = json.loads(reply.text[reply.text.index('{"error"') :])["error"]
            assert (error["type"], error["message"]) == ("queue_timeout", "waited 0.05 s for a seat (--queue-timeout)")
            if reply.status_code != 200:  # a stream has begun before
                assert reply.status_code == 503
                assert int(reply.headers["retry-after"]) >= 1
        server.runner.release()
        assert (await seated).status_code == 200, "two of the four waited longer, but two had seats"


async def test_deadlines_hold_in_the_lane_of_vllm_too(tmp_path: Path) -> None:
    async with ready(make_stand_in(tmp_path), request_timeout=60.0) as server:
        endless = {"prompts": ["y", "x"], "max_tokens": 500, "ignore_eos": True}
        reply = await server.post("/generate_vllm", **endless, timeout_s=0.001)
        assert (reply.status_code, reply.json()["error"]["type"]) == (504, "request_timeout")
        reply = await server.post("/generate_vllm", **endless, timeout_s=61)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "timeout_s")
        reply = await server.post("/generate_vllm", prompts=["x"], max_tokens=2, timeout_s=60)
        assert reply.status_code == 200


# --- the official client -------------------------------------------------------------------------
async def test_the_official_client_raises_for_a_deadline_before_the_answer(served: Served) -> None:
    served.server.runner.hold()
    with pytest.raises(openai.InternalServerError) as caught:
        await served.client.chat.completions.create(model="tiny", messages=MESSAGES, extra_body={"timeout_s": 0.05})
    assert (caught.value.status_code, caught.value.code) == (504, "request_timeout")


async def test_the_official_client_raises_for_a_deadline_in_a_stream_and_gets_what_came_before(served: Served) -> None:
    served.server.runner.hold()
    stream = await served.client.completions.create(
        model="tiny", prompt="Hi", max_tokens=FOREVER, stream=True, extra_body={"timeout_s": 1.0}
    )
    await served.server.run_steps(2)
    pieces: list[str] = []

    async def read() -> None:
        async for chunk in stream:
            pieces.extend(choice.text for choice in chunk.choices)

    with pytest.raises(openai.APIError) as caught:
        await asyncio.wait_for(read(), 30)
    assert "".join(pieces).startswith("He")
    assert caught.value.message == "took longer than 1 s (timeout_s)"
    assert caught.value.code == "request_timeout"


def test_the_official_client_that_is_refused_for_now_waits_as_long_as_it_is_told() -> None:
    """Beyond its own limit it would not come again at all, or at once: our longest time is below that."""
    from everystep.engine.door import MAX_RETRY_AFTER_S

    client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1")
    headers = httpx.Headers({"retry-after": str(int(MAX_RETRY_AFTER_S))})
    assert client._parse_retry_after_header(headers) == MAX_RETRY_AFTER_S  # type: ignore[arg-type]
    assert client._should_retry(httpx.Response(429, headers=headers))  # type: ignore[arg-type]
