"""``/figures``: by hand on an engine made of an observer, and held against what a real one was asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from api.harness import Server, serving
from engine.vllm_stand_in import make_stand_in
from everystep.api.figures import router
from everystep.errors import EverystepError, http_status
from everystep.messages import EngineInfo, EngineStatus
from everystep.observe.observer import Observer
from everystep.types import FinishReason
from observe.made_steps import BLOCKS_TOTAL, output, row, submit

INFO = EngineInfo("m", "openvino", "int8", 2, 16, BLOCKS_TOTAL, 4096, 2048, {"static": 4, "continuous": 64}, {})
READY = EngineStatus(is_live=True, is_ready=True, info=INFO)
NEVER = {
    "tokens_per_s": 0, "requests_per_s": 0, "steps_per_s": 0, "ttft_s": None, "itl_s": None, "step_s": None,
    "seat_steps": {"working": 0, "held": 0, "empty": 0},
}  # fmt: skip


class FakeEngine:
    """What the route sees of an engine, at 100 s."""

    def __init__(self, *policies: str) -> None:
        self.policies = policies
        self.observer = Observer(policies=policies)
        self.status = READY

    def now_s(self) -> float:
        return 100.0

    async def wait_for_step(self, after: int) -> None:
        raise AssertionError("nobody waits for a step here")


def client_of(engine: FakeEngine) -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(router(engine))

    @app.exception_handler(EverystepError)
    async def reply(request: Request, error: EverystepError) -> JSONResponse:
        return JSONResponse({"message": error.message, "param": error.param}, status_code=http_status(error))

    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


async def ask(engine: FakeEngine, **query: Any) -> Any:
    async with client_of(engine) as client:
        return (await client.get("/figures", params=query)).json()


async def test_all_of_it_by_hand() -> None:
    engine = FakeEngine("static", "continuous")
    for name in ("a", "b", "c"):
        engine.observer.accepted(submit(name, policy="static", arrival_s=95.0))
    held = [row(0, "a", phase="prefill", new=3), row(1, "x", phase="held", new=0)]
    step = output(7, policy="static", rows=held, start_s=95.5, step_s=0.5, started=["a"], num_prefix_hit_tokens=16)
    engine.observer.step(step)
    engine.observer.token("a", 96.0)
    engine.observer.token("a", 96.2)
    engine.observer.finished("c", FinishReason.ABORTED, 96.5)
    told = await ask(engine, window_s=8)
    static = told["lanes"].pop("static")
    assert told.pop("server_id")
    assert told == {
        "now_s": 100.0, "window_s": 8, "is_ready": True, "reason": "", "last_step": 7, "num_worker_restarts": 0,
        "blocks_used": 12, "blocks_total": BLOCKS_TOTAL,
        "totals": {"prompt_tokens": 3, "generation_tokens": 2, "prefix_cache_hit_tokens": 16, "preemptions": 0},
        "lanes": {"continuous": {"state": None, "seats": 64, "num_running": 0, "num_waiting": 0, **NEVER}},
    }  # fmt: skip
    assert {name: quantiles["p50"] for name in ("ttft_s", "itl_s", "step_s") if (quantiles := static.pop(name))} == {
        "ttft_s": pytest.approx(1.0, rel=0.025),
        "itl_s": pytest.approx(0.2, rel=0.025),
        "step_s": pytest.approx(0.5, rel=0.025),
    }
    assert static == {
        "state": None, "seats": 4, "num_running": 1, "num_waiting": 1, "tokens_per_s": 2 / 8, "requests_per_s": 1 / 8,
        "steps_per_s": 1 / 8, "seat_steps": {"working": 1, "held": 1, "empty": 2},
    }  # fmt: skip


async def test_without_a_window_it_is_of_ten_seconds() -> None:
    engine = FakeEngine("continuous")
    engine.observer.accepted(submit("a", arrival_s=80.0))
    for at_s in (89.9, 90.0, 99.9):
        engine.observer.token("a", at_s)
    told = await ask(engine)
    assert (told["window_s"], told["lanes"]["continuous"]["tokens_per_s"]) == (10, 2 / 10)
    assert (await ask(engine, window_s=60))["lanes"]["continuous"]["tokens_per_s"] == 3 / 60


@pytest.mark.parametrize("window_s", [0, 61, -1, 10**30])
async def test_a_window_out_of_range_is_refused_by_name_with_the_limits(window_s: int) -> None:
    async with client_of(FakeEngine("continuous")) as client:
        reply = await client.get("/figures", params={"window_s": window_s})
    assert (reply.status_code, reply.json()["param"]) == (400, "window_s")
    assert f"window_s={window_s}" in reply.json()["message"]
    assert "from 1 to 60" in reply.json()["message"]


@pytest.mark.parametrize("window_s", ["", "ten", "1.5"])
async def test_what_is_no_number_of_seconds_is_refused(window_s: str) -> None:
    async with client_of(FakeEngine("continuous")) as client:
        assert (await client.get(f"/figures?window_s={window_s}")).status_code == 422


async def test_it_is_answered_before_there_is_an_engine_and_says_why_there_is_none() -> None:
    engine = FakeEngine("static", "continuous")
    engine.status = EngineStatus(is_live=True, is_ready=False, reason="the worker is starting (3 s)")
    told = await ask(engine)
    assert (told["is_ready"], told["reason"], told["last_step"]) == (False, "the worker is starting (3 s)", -1)
    assert told["lanes"] == {
        policy: {"state": None, "seats": None, "num_running": 0, "num_waiting": 0, **NEVER}
        for policy in ("static", "continuous")
    }


async def test_it_is_answered_while_the_worker_is_away_and_counts_the_next_one() -> None:
    engine = FakeEngine("static")
    engine.observer.step(output(7, policy="static", rows=[row(0, "a")], start_s=98.0))
    engine.observer.worker_ended()
    engine.status = replace(READY, is_ready=False, reason="the worker is restarting: killed")
    away = await ask(engine)
    assert (away["is_ready"], away["blocks_used"], away["last_step"]) == (False, 0, 7)
    engine.observer.worker_restarted()
    engine.status = READY
    engine.observer.step(output(0, policy="static", rows=[row(0, "b")], start_s=99.0))  # as one that numbers anew
    back = await ask(engine)
    assert (back["is_ready"], back["num_worker_restarts"], back["last_step"]) == (True, 1, 0)
    assert back["lanes"]["static"]["steps_per_s"] == 2 / 10


async def test_vllm_has_no_seats_and_no_steps_but_tells_who_runs_and_who_waits() -> None:
    engine = FakeEngine("static", "vllm")
    engine.status = replace(READY, lanes={"static": "ready", "vllm": "vLLM is starting (37 s)"})
    for name in ("a", "b", "c"):
        engine.observer.accepted(submit(name, policy="vllm", arrival_s=99.0))
    engine.observer.started("a", 99.1)
    engine.observer.started("b", 99.1)
    engine.observer.token("a", 99.5)
    vllm = (await ask(engine))["lanes"]["vllm"]
    assert (vllm["seats"], vllm["num_running"], vllm["num_waiting"]) == (None, 2, 1)
    assert vllm["state"] == "vLLM is starting (37 s)"
    assert (vllm["tokens_per_s"], vllm["steps_per_s"], vllm["step_s"]) == (0.1, 0, None)
    assert vllm["seat_steps"] == {"working": 0, "held": 0, "empty": 0}
    assert vllm["ttft_s"]["p50"] == pytest.approx(0.5, rel=0.025)


async def test_each_of_many_lanes_has_its_own() -> None:
    policies = tuple(f"lane{n}" for n in range(12))
    engine = FakeEngine(*policies)
    for count, policy in enumerate(policies):
        for n in range(count):
            engine.observer.accepted(submit(f"{policy}-{n}", policy=policy, arrival_s=95.0))
            engine.observer.token(f"{policy}-{n}", 96.0)
    lanes = (await ask(engine))["lanes"]
    assert list(lanes) == list(policies)
    assert [lane["num_waiting"] for lane in lanes.values()] == list(range(12))
    assert [lane["tokens_per_s"] for lane in lanes.values()] == [n / 10 for n in range(12)]


# --- a whole application -----------------------------------------------------------------------------
async def test_six_prompts_on_four_static_seats_are_four_running_and_two_waiting_until_all_are_done() -> None:
    async with serving(static_batch_size=4) as server:
        server.runner.hold()
        prompts = [f"p{n}" for n in range(6)]
        sending = asyncio.create_task(server.post("/generate", prompts=prompts, max_tokens=3, policy="static"))
        await server.run_steps(1)
        told = (await server.http.get("/figures")).json()
        assert {name: (lane["num_running"], lane["num_waiting"]) for name, lane in told["lanes"].items()} == {
            "static": (4, 2), "per_token": (0, 0), "continuous": (0, 0),
        }  # fmt: skip
        assert {name: lane["seats"] for name, lane in told["lanes"].items()} == {
            "static": 4, "per_token": 4, "continuous": 64,
        }  # fmt: skip
        assert told["blocks_used"] > 0
        server.runner.release()
        assert (await sending).status_code == 200
        done = (await server.http.get("/figures")).json()
        assert done["lanes"]["static"]["num_running"] == done["lanes"]["static"]["num_waiting"] == 0
        assert done["totals"]["generation_tokens"] == 6 * 3
        assert done["last_step"] == 5  # two rounds of three steps
        assert done["blocks_total"] == (await server.http.get("/engine")).json()["num_blocks"]
        assert told["server_id"] == done["server_id"]
        assert told["now_s"] < done["now_s"]


async def test_vllm_s_lane_is_counted_by_what_it_says_without_a_step(tmp_path: Path) -> None:
    stand_in = make_stand_in(tmp_path)
    async with serving(vllm_python=stand_in.python, max_model_len=512) as server:
        before = (await server.http.get("/figures")).json()["lanes"]["vllm"]
        assert (before["seats"], before["num_running"]) == (None, 0)
        assert before["state"].startswith("vLLM is starting")
        stand_in.open_gate()
        async with asyncio.timeout(60):
            while (await server.http.get("/figures")).json()["lanes"]["vllm"]["state"] != "ready":
                await asyncio.sleep(0)
        await server.post("/generate_vllm", prompts=["x", "y"], max_tokens=6)
        after = (await server.http.get("/figures")).json()
        vllm = after["lanes"]["vllm"]
        assert after["totals"]["generation_tokens"] == 2 * 6
        assert (vllm["num_running"], vllm["num_waiting"], vllm["steps_per_s"], after["last_step"]) == (0, 0, 0, -1)


async def test_another_server_has_another_id(server: Server) -> None:
    async with serving() as other:
        ids = {(await one.http.get("/figures")).json()["server_id"] for one in (server, other)}
    assert len(ids) == 2


async def test_it_wants_the_key_and_knows_no_other_query_key() -> None:
    async with serving(api_key=("a-key",)) as server:
        assert (await server.http.get("/figures")).status_code == 401
        headers = {"x-api-key": "a-key"}
        assert (await server.http.get("/figures", headers=headers)).status_code == 200
        reply = await server.http.get("/figures?window=5", headers=headers)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "window")
