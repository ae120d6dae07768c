"""What the engine refuses or fails, as HTTP says it: statuses, Retry-After, the shape."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from api.harness import EngineClient, Server, create_app, serving, tiny_settings
from everystep.api.error_replies import error_reply
from everystep.errors import EngineUnavailable, QueueFull, QueueTimeout, RequestTimeout


async def filled(server: Server) -> asyncio.Task[httpx.Response]:
    """Take the static lane's seats for as long as the runner is held."""
    server.runner.hold()
    task = asyncio.create_task(server.post("/generate", prompts=list("abcd"), max_tokens=2, ignore_eos=True))
    await server.run_steps(1)
    return task


async def test_a_full_line_is_429_with_whole_seconds_to_wait() -> None:
    async with serving(max_queue=4) as server:
        blockers = await filled(server)
        waiting = asyncio.create_task(server.post("/generate", prompts=list("efgh"), max_tokens=1))
        while server.engine.observer.metrics.num_accepted["static"] != 8:
            await asyncio.sleep(0)
        for path, body in {
            "/basic_generate": {"prompt": "x"},
            "/generate_stream": {"prompt": "x"},
            "/v1/completions": {"model": "tiny", "prompt": "x", "stream": True},
        }.items():
            reply = await server.post(path, **body)
            assert (reply.status_code, reply.json()["error"]["type"]) == (429, "queue_full")
            assert int(reply.headers["retry-after"]) >= 1
        server.runner.release()
        assert [(await task).status_code for task in (blockers, waiting)] == [200, 200]


def test_the_wait_is_rounded_up_and_never_nothing() -> None:
    for seconds, header in [(0.0, "1"), (1.0, "1"), (1.2, "2"), (59.5, "60")]:
        reply = error_reply(QueueFull("full", retry_after_s=seconds), "/generate")
        assert reply.headers["retry-after"] == header


async def test_waiting_too_long_for_a_seat_is_503_and_taking_too_long_504() -> None:
    async with serving(queue_timeout=0.05) as server:
        blockers = await filled(server)
        reply = await server.post("/basic_generate", prompt="x")
        assert (reply.status_code, reply.json()["error"]["type"]) == (503, "queue_timeout")
        assert "retry-after" in reply.headers
        server.runner.release()
        assert (await blockers).status_code == 200
    async with serving(request_timeout=0.05) as server:
        server.runner.hold()
        reply = await server.post("/basic_generate", prompt="x")
        assert (reply.status_code, reply.json()["error"]["type"]) == (504, "request_timeout")


async def test_a_deadline_that_passes_in_a_stream_is_an_error_event() -> None:
    async with serving(request_timeout=0.05) as server:
        server.runner.hold()
        reply = await server.chat("Hi", stream=True)
        assert reply.status_code == 200
        kind, data = [block for block in reply.text.split("\n\n") if block][-1].split("\n")
        assert kind == "event: error"
        error = json.loads(data.removeprefix("data: "))["error"]
        assert (error["type"], error["code"]) == ("request_timeout", "request_timeout")
        assert "[DONE]" not in reply.text


async def test_before_the_engine_is_there_work_is_503_and_looking_is_not() -> None:
    app = create_app(engine=EngineClient.in_process(tiny_settings()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tiny") as http:
        bodies = {
            "/basic_generate": {"prompt": "x"},
            "/v1/completions": {"model": "tiny", "prompt": [1]},
            "/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "x"}]},
            "/tokenize": {"prompt": "x"},
        }
        for path, body in bodies.items():
            reply = await http.post(path, json=body)
            assert (reply.status_code, reply.json()["error"]["type"]) == (503, "engine_unavailable"), path
            assert int(reply.headers["retry-after"]) >= 1
        assert (await http.get("/health/live")).status_code == 200
        assert (await http.get("/health/ready")).status_code == 503
        assert (await http.get("/v1/models")).json()["data"][0]["max_model_len"] is None


async def test_while_draining_work_is_503(server: Server) -> None:
    server.engine.stop_accepting()
    assert (await server.post("/basic_generate", prompt="x")).status_code == 503


async def test_one_prompt_of_several_that_fails_fails_the_request_and_frees_the_others(server: Server) -> None:
    server.runner.hold()
    task = asyncio.create_task(server.post("/generate", prompts=["a", "b"], max_tokens=300, ignore_eos=True))
    await server.run_steps(1)
    server.runner.fails[next(iter(server.runner.seen))] = "the row broke"
    server.runner.allow(1)
    reply = await task
    assert (reply.status_code, reply.json()["error"]["message"]) == (500, "the row broke")
    server.runner.release()
    counts = server.engine.observer.metrics.num_ended
    assert (counts["static", "failed"], counts["static", "aborted"]) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_failed_stands_in_the_log_by_its_ids(
    server: Server, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.runner.hold()
    task = asyncio.create_task(server.complete("a", max_tokens=300, ignore_eos=True, stream=stream))
    await server.run_steps(1)
    server.runner.fails[server.runner.last_seen.sequence_id] = "the row broke"
    server.runner.release()
    ids = (await task).headers
    (line,) = [record.getMessage() for record in caplog.records if record.name == "everystep.api.request_scope"]
    names = f"request {ids['x-request-id']}, generation {ids['x-generation-id']}"
    assert line == f"{names}: engine_failed: the row broke"


@pytest.mark.parametrize(
    ("error", "status"),
    [(EngineUnavailable("x"), 503), (QueueTimeout("x"), 503), (RequestTimeout("x"), 504), (QueueFull("x"), 429)],
)
def test_an_errors_reply_has_three_fields_and_for_openai_four(error: Exception, status: int) -> None:
    native = error_reply(error, "/generate")
    assert native.status_code == status
    assert list(json.loads(native.body)["error"]) == ["type", "message", "param"]
    assert list(json.loads(error_reply(error, "/v1/completions").body)["error"]) == ["type", "message", "param", "code"]


async def test_a_text_that_no_reading_fits_into_the_context_is_refused_unread() -> None:
    async with serving() as server:
        longest = server.engine.max_model_len * server.engine.tokenizer.max_token_bytes
        reply = await server.post("/tokenize", prompt="a " * longest)
        assert reply.status_code == 400
        assert reply.json()["error"]["type"] == "prompt_too_long"
        assert f"hold at most {longest}" in reply.json()["error"]["message"]
