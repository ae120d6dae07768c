"""No generation outlives its request: whatever happens, and whenever, between the first byte and the last."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from api.harness import FOREVER, Call, Server, serving
from api.test_api_disconnects import REQUESTS, call, outcomes
from api.test_api_vllm import ready
from engine.vllm_stand_in import make_stand_in
from everystep.api import native, off_loop, openai_chat, openai_completions
from everystep.messages import GenerationRequest

TURNS = (0, 1, 2, 4, 8, 40)  # of the event loop, between which something happens
STREAMS = [name for name in REQUESTS if "stream" in name]


async def nothing_is_left(server: Server, *, num_open: int = 0) -> None:
    found = await outcomes(server)
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == num_open
    assert len(server.engine._requests._open) == num_open


@pytest.fixture
async def held() -> AsyncIterator[Server]:
    async with serving() as server:
        server.runner.hold()
        yield server


# --- between submit and the reply ----------------------------------------------------------------
def fail(*args: object, **kwargs: object) -> Any:
    raise RuntimeError("a bug of ours")


@pytest.mark.parametrize("name", STREAMS)
async def test_a_handler_that_breaks_between_submit_and_its_stream_leaves_nobody_running(
    held: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (native, openai_chat, openai_completions):
        monkeypatch.setattr(room, "EventStream", fail)
    broken = call(held, name)
    await broken.task
    assert broken.status == 500
    assert (await outcomes(held))["aborted"] == (await outcomes(held))["everystep_requests_accepted_total"] > 0
    await nothing_is_left(held)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_handler_that_is_cancelled_at_any_moment_leaves_nobody_running(held: Server, name: str) -> None:
    """A server may cancel a request's task at any await there is: here after any number of turns of the loop."""
    for num_turns in TURNS:
        cut = call(held, name)
        for _ in range(num_turns):
            await asyncio.sleep(0)
        cut.task.cancel()
        await asyncio.gather(cut.task, return_exceptions=True)
        await nothing_is_left(held)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_leaves_at_any_moment_leaves_nobody_running(held: Server, name: str) -> None:
    for num_turns in TURNS:
        gone = call(held, name)
        for _ in range(num_turns):
            await asyncio.sleep(0)
        gone.leave()
        await gone.task
        await nothing_is_left(held)


# --- while a long prompt is read -----------------------------------------------------------------
@pytest.mark.parametrize("name", ["basic_generate", "generate_stream", "completions, streamed", "chat"])
async def test_a_client_that_leaves_while_its_prompt_is_read_never_gets_a_second_step(
    held: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(off_loop, "LONG", 1)  # so that the tiny model's context can hold a long text
    tokenizer = held.engine.tokenizer
    may_end, has_begun = threading.Event(), threading.Event()

    def slow(encode: Callable[..., list[int]]) -> Callable[..., list[int]]:
        def read(*args: Any, **kwargs: Any) -> list[int]:
            has_begun.set()
            assert may_end.wait(30)
            return encode(*args, **kwargs)

        return read

    monkeypatch.setattr(tokenizer, "encode_prompt", slow(tokenizer.encode_prompt))
    monkeypatch.setattr(tokenizer, "encode_chat", slow(tokenizer.encode_chat))
    path, body = REQUESTS[name]
    gone = Call(held.app, path, json.dumps(body).encode())
    assert await asyncio.to_thread(has_begun.wait, 30)
    gone.leave()
    may_end.set()
    await asyncio.wait_for(gone.task, 30)
    await nothing_is_left(held)
    monkeypatch.undo()
    held.runner.release()
    await held.post("/basic_generate", prompt="next", max_tokens=1, policy="continuous")
    last = held.runner.last_seen.sequence_id
    assert all(num <= 1 for who, num in held.runner.num_steps_of.items() if who != last)


# --- at the end ----------------------------------------------------------------------------------
async def test_a_client_that_leaves_behind_the_last_token_before_the_reply_is_read_ends_nothing_twice(
    held: Server,
) -> None:
    gone = Call(held.app, "/basic_generate", json.dumps({"prompt": "x", "max_tokens": 2, "ignore_eos": True}).encode())
    await held.run_steps(2)
    gone.leave()
    await gone.task
    found = await outcomes(held)
    assert found["length"] + found["aborted"] == found["everystep_requests_accepted_total"] == 1
    await nothing_is_left(held)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_leaves_while_the_server_drains_is_no_longer_waited_for(name: str) -> None:
    async with serving(drain_timeout=600.0) as server:
        server.runner.hold()
        staying = call(server, name)
        await server.run_steps(1)
        server.engine.stop_accepting()
        drained = asyncio.create_task(server.engine._requests.all_ended.wait())
        staying.leave()
        await staying.task
        await asyncio.wait_for(drained, 30)
        await nothing_is_left(server)
        server.runner.release()


# --- a round of the static lane ------------------------------------------------------------------
async def test_in_a_static_round_the_seat_of_one_who_left_is_held_for_the_rest_of_it(held: Server) -> None:
    num_accepted = held.engine.observer.metrics.num_accepted
    first = asyncio.create_task(held.post("/basic_generate", prompt="first", max_tokens=1))
    while num_accepted["static"] < 1 or len(held.engine._requests.line):
        await asyncio.sleep(0)  # until it has a seat: the next three share a round
    staying = asyncio.create_task(held.post("/generate", prompts=["a", "b"], max_tokens=6, ignore_eos=True))
    gone = Call(
        held.app, "/basic_generate", json.dumps({"prompt": "c", "max_tokens": 200, "ignore_eos": True}).encode()
    )
    while num_accepted["static"] < 4:
        await asyncio.sleep(0)
    await held.run_steps(3)
    gone.leave()
    await gone.task
    held.runner.release()
    assert [(await task).status_code for task in (first, staying)] == [200, 200]
    steps = (await held.http.get("/steps")).json()["steps"]
    assert [len(step["rows"]) for step in steps] == [1, 3, 3, 3, 3, 3, 3]
    (leaver,) = {row["request_id"] for row in steps[1]["rows"] if row["seat"] == 2}
    phases = [row["phase"] for step in steps for row in step["rows"] if row["request_id"] == leaver]
    # The third of its steps had begun when the client left; the abort is taken in at its end.
    assert phases == ["prefill", "decode", "decode", "held", "held", "held"]


# --- other streams, other engines ----------------------------------------------------------------
async def test_a_reader_of_the_live_step_log_that_leaves_is_forgotten(held: Server) -> None:
    tasks = len(asyncio.all_tasks())
    for num_turns in (0, 3, 30):
        await asyncio.wait_for(get_stream(held, leaves_after=num_turns), 30)
    assert len(asyncio.all_tasks()) <= tasks + 1  # the library's watcher of the server's end stays


async def get_stream(server: Server, leaves_after: int) -> None:
    has_left, turns = asyncio.Event(), 0

    async def receive() -> dict[str, Any]:
        nonlocal turns
        if turns == 0:
            turns = 1
            return {"type": "http.request", "body": b"", "more_body": False}
        for _ in range(leaves_after):
            await asyncio.sleep(0)
        has_left.set()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        return

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/steps/stream", "raw_path": b"/steps/stream", "root_path": "", "query_string": b"",
        "headers": [], "server": ("tiny", 80), "client": ("somebody", 1),
    }  # fmt: skip
    await server.app(scope, receive, send)
    assert has_left.is_set()


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_the_lane_of_vllm_ends_every_prompt_there(tmp_path: Path, stream: bool) -> None:
    async with ready(make_stand_in(tmp_path)) as server:
        endless = {"max_tokens": FOREVER, "ignore_eos": True}
        path, body = ("/generate_vllm", {"prompts": ["y", "yy", "yyy"], **endless})
        if stream:
            path, body = "/v1/completions", {"model": "tiny", "prompt": ["y"], "n": 3, "policy": "vllm", "stream": True}
        gone = Call(server.app, path, json.dumps({**body, **endless}).encode())
        while server.engine.observer.metrics.num_accepted["vllm"] < 3:
            await asyncio.sleep(0)
        gone.leave()
        await asyncio.wait_for(gone.task, 30)
        await nothing_is_left(server)


async def test_an_abort_is_of_the_whole_request_whichever_choice_is_being_read(held: Server) -> None:
    request = GenerationRequest(request_id="r", prompts=((1,), (2,)), params=params(n=2), policy="continuous")
    async with held.engine.submit(request) as generation:
        await held.run_steps(1)
        await anext(generation)
    await nothing_is_left(held)


def params(n: int) -> Any:
    from everystep.sampling_params import SamplingParams

    return SamplingParams(max_tokens=FOREVER, ignore_eos=True, n=n)
