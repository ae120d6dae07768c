"""The lane of vLLM over HTTP, with a stand-in for vLLM; and servers that lack an endpoint's own lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.harness import TOKENIZER, Call, Server, chunks, events, ids_of, serving, tiny_settings
from engine.vllm_stand_in import StandIn, make_stand_in, tokens_after
from everystep.api import create_app
from everystep.engine.client import EngineClient
from everystep.runner.fake import FakeRunner

DEADLINE_S = 30.0


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path)


@asynccontextmanager
async def ready(stand_in: StandIn, **settings: Any) -> AsyncIterator[Server]:
    stand_in.open_gate()
    async with serving(vllm_python=stand_in.python, max_model_len=512, **settings) as server:
        async with asyncio.timeout(DEADLINE_S):
            while (await server.post("/generate_vllm", prompts=[])).status_code != 200:
                await asyncio.sleep(0.01)
        yield server


def said(prompt: str, num_tokens: int) -> str:
    """The stand-in's text, by the tokenizers library."""
    return TOKENIZER.decode(tokens_after(tuple(ids_of(prompt)), num_tokens))


async def test_prompts_are_answered_in_their_order(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        prompts = ["Hello, I am", "The weather is", "x"]
        reply = await server.post("/generate_vllm", prompts=prompts, max_tokens=6)
        assert reply.json() == {"generated_texts": [said(prompt, 6) for prompt in prompts]}
        one = await server.post("/generate_vllm", prompts=["x"], max_tokens=6, echo=True)
        assert one.json() == {"generated_texts": ["x" + said("x", 6)]}
        assert (await server.post("/generate_vllm", prompts=[])).json() == {"generated_texts": []}


async def test_bodies_that_make_no_sense_are_refused(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        for body, status, param in [
            ({"prompts": "x"}, 422, "prompts"),
            ({"prompts": ["x"], "policy": "vllm"}, 422, "policy"),
            ({"prompts": ["x"], "temperature": 2.5}, 400, "temperature"),
            ({"prompts": ["x"], "max_tokens": 0}, 400, "max_tokens"),
            ({"prompts": ["x"], "max_tokens": 512}, 400, "max_tokens"),
        ]:
            reply = await server.post("/generate_vllm", **body)
            assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


async def test_every_endpoint_takes_the_lane_by_name(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        await answers_on_vllm(server, policy="vllm")
        assert server.runner.seen == {}, "our own lanes stood still"
        reply = await server.post("/generate", prompts=["x"], max_tokens=2, policy="fastest")
        assert "must be one of static, per_token, continuous, vllm" in reply.json()["error"]["message"]


async def test_a_server_of_vllm_alone_answers_every_endpoint_with_it(stand_in: StandIn) -> None:
    async with ready(stand_in, runner="vllm") as server:
        await answers_on_vllm(server)
        for path, body in [("/basic_generate", {"prompt": "x"}), ("/generate", {"prompts": []})]:
            reply = await server.post(path, **body, policy="static")
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "policy")
            assert "must be one of vllm" in reply.json()["error"]["message"]
        assert (await server.http.get("/version")).json()["runner"] == "vllm"


async def answers_on_vllm(server: Server, **lane: str) -> None:
    whole, short = said("Hello", 5), {"max_tokens": 5, **lane}
    reply = await server.post("/basic_generate", prompt="Hello", **short)
    assert reply.json() == {"generated_text": whole}
    reply = await server.post("/generate", prompts=["x", "Hello"], **short)
    assert reply.json() == {"generated_texts": [said("x", 5), whole]}
    reply = await server.post("/generate_stream", prompt="Hello", **short)
    assert "".join(httpx.Response(200, text=data).json()["token"] for data in events(reply.text)) == whole
    reply = await server.complete("Hello", **short)
    assert reply.json()["choices"][0]["text"] == whole
    streamed = chunks((await server.complete("Hello", stream=True, **short)).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == whole
    reply = await server.chat("Hi", **short)
    assert len(reply.json()["choices"][0]["message"]["content"]) > 0
    assert chunks((await server.chat("Hi", stream=True, **short)).text)[-1]["choices"][0]["finish_reason"] == "length"


async def test_while_vllm_starts_it_says_so_and_our_lanes_are_ready(stand_in: StandIn) -> None:
    async with serving(vllm_python=stand_in.python, max_model_len=512) as server:
        reply = await server.post("/generate_vllm", prompts=["x"])
        assert reply.status_code == 503
        assert "vLLM is starting (" in reply.json()["error"]["message"]
        assert reply.headers["retry-after"]
        health = await server.http.get("/health/ready")
        assert health.status_code == 200
        assert health.json()["lanes"]["continuous"] == "ready"
        assert "starting" in health.json()["lanes"]["vllm"]
        assert (await server.post("/generate", prompts=["x"], max_tokens=2)).status_code == 200


async def test_a_client_that_leaves_is_aborted_in_vllm(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        counts = server.engine.observer.metrics.vllm
        assert counts is not None
        call = Call(server.app, "/generate_vllm", b'{"prompts": ["a", "b"], "max_tokens": 400}')
        async with asyncio.timeout(DEADLINE_S):
            while counts.load.num_running < 2:
                await asyncio.sleep(0.01)
            call.leave()
            await call.task
            while counts.load.num_running:
                await asyncio.sleep(0.01)
        assert server.engine.observer.metrics.num_ended["vllm", "aborted"] == 2


async def test_accepted_is_ended_and_running_and_waiting_at_each_scrape(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        work = [
            asyncio.create_task(server.post("/generate_vllm", prompts=["a", "b"], max_tokens=n)) for n in (3, 150, 400)
        ]
        while not work[1].done():
            await balances(server)
            await asyncio.sleep(0.01)
        work[2].cancel()
        await asyncio.gather(*work, return_exceptions=True)
        assert await balances(server) == (6, 6)


async def balances(server: Server) -> tuple[float, float]:
    text = (await server.http.get("/metrics")).text
    values = {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if 'policy="vllm"' in line)
    }
    accepted = values['everystep_requests_accepted_total{policy="vllm"}']
    ended = sum(value for name, value in values.items() if "requests_total" in name and "rejected" not in name)
    is_open = sum(values[f'everystep_num_requests_{state}{{policy="vllm"}}'] for state in ("running", "waiting"))
    assert accepted == ended + is_open, text
    return accepted, ended


async def test_a_request_s_life_in_vllm_has_times_and_no_steps(stand_in: StandIn) -> None:
    async with ready(stand_in) as server:
        reply = await server.post("/generate_vllm", prompts=["x"], max_tokens=3)
        life = (await server.http.get(f"/requests/{reply.headers['x-generation-id']}")).json()
        (sequence,) = life["sequences"]
        assert (life["policy"], sequence["state"], sequence["output_tokens"]) == ("vllm", "finished", 3)
        assert (sequence["num_steps"], sequence["first_step"]) == (0, None)
        assert 0 <= sequence["queue_s"] <= sequence["ttft_s"] <= sequence["e2e_s"]
        assert (await server.http.get("/steps")).json()["steps"] == []


# --- servers without an endpoint's own lane ----------------------------------------------------------
class StaticRunner(FakeRunner):
    """A runner that serves one lane, as the hand-written baseline does."""

    lanes = ("static",)


async def test_an_endpoint_whose_lane_isn_t_here_takes_the_server_s_first() -> None:
    engine = EngineClient.in_process(tiny_settings(drain_timeout=0), lambda: StaticRunner(vocab_size=384))
    app = create_app(engine=engine)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as http:
        await engine.wait_ready()
        for path, body in [
            ("/generate_stream", {"prompt": "x"}),
            ("/v1/completions", {"model": "tiny", "prompt": "x"}),
            ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}),
        ]:
            assert (await http.post(path, json={**body, "max_tokens": 2})).status_code == 200
            reply = await http.post(path, json={**body, "max_tokens": 2, "policy": "continuous"})
            assert reply.status_code == 400
            assert "'continuous' must be one of static" in reply.json()["error"]["message"]
        assert {name for name, num in engine.observer.metrics.num_accepted.items() if num} == {"static"}
