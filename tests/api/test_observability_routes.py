"""The routes for looking, on an app of their own with an engine made of an observer and a step's bell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client.parser import text_string_to_metric_families

from everystep.api.observability import MAX_LAG_STEPS, live_steps, router
from everystep.config import Settings
from everystep.errors import EverystepError, http_status
from everystep.messages import EngineInfo, EngineStatus
from everystep.observe.observer import Observer
from everystep.observe.shared_steps import SharedSteps
from everystep.types import FinishReason
from everystep.version import __version__
from observe.made_steps import output, row, submit, waiting

INFO = EngineInfo("smollm2-135m", "openvino", "int8", 2, 16, 100, 4096, 2048, {}, {})
READY = EngineStatus(is_live=True, is_ready=True, info=INFO)


class FakeEngine:
    """What the routes see of an engine; ``step`` is what its worker would send."""

    def __init__(self, step_log_size: int = 10_000) -> None:
        self.observer = Observer(policies=("static", "continuous"), step_log_size=step_log_size)
        self.settings = Settings()
        self.status = READY
        self.worker_pid = None
        self.news = asyncio.Condition()
        self.is_awaited = asyncio.Event()

    def now_s(self) -> float:
        return 100.0

    async def wait_for_step(self, after: int) -> None:
        async with self.news:
            self.is_awaited.set()
            await self.news.wait_for(lambda: self.observer.step_log.last_step > after)

    async def step(self, *numbers: int) -> None:
        async with self.news:
            for number in numbers:
                self.observer.step(output(number, rows=[row(0, f"s{number}")]))
            self.news.notify_all()


def make_app(engine: FakeEngine) -> FastAPI:
    app = FastAPI()
    app.include_router(router(engine))

    @app.exception_handler(EverystepError)
    async def reply(request: Request, error: EverystepError) -> JSONResponse:
        return JSONResponse({"message": error.message, "param": error.param}, status_code=http_status(error))

    return app


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def client(engine: FakeEngine) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_app(engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


# --- health and version --------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
async def test_a_well_engine_is_ok(client: httpx.AsyncClient, path: str) -> None:
    reply = await client.get(path)
    assert (reply.status_code, reply.json()) == (200, {"status": "ok", "reason": None})


async def test_an_engine_that_starts_is_live_and_not_ready(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.status = EngineStatus(is_live=True, is_ready=False, reason="the worker is starting")
    assert (await client.get("/health/live")).status_code == 200
    for path in ("/health", "/health/ready"):
        reply = await client.get(path)
        assert reply.status_code == 503
        assert reply.json() == {"status": "unavailable", "reason": "the worker is starting"}


async def test_a_stuck_engine_is_not_live(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.status = EngineStatus(is_live=False, is_ready=False, reason="no step for 61 s")
    reply = await client.get("/health/live")
    assert (reply.status_code, reply.json()["reason"]) == (503, "no step for 61 s")


async def test_the_version_names_the_package_the_model_and_the_runner(client: httpx.AsyncClient) -> None:
    told = (await client.get("/version")).json()
    assert told["everystep"] == __version__
    assert (told["model"], told["runner"], told["precision"]) == ("smollm2-135m", "openvino", "int8")
    assert told["openvino"][:2].isdigit()


async def test_the_version_is_told_before_the_engine_is_known(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.status = EngineStatus(is_live=True, is_ready=False, reason="starting")
    told = (await client.get("/version")).json()
    assert (told["everystep"], told["model"]) == (__version__, None)
    assert "openvino" not in told


# --- metrics -------------------------------------------------------------------------------------
async def test_metrics_are_prometheus_text(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.observer.accepted(submit("a"))
    reply = await client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(reply.text)}
    accepted = {one.labels["policy"]: one.value for one in families["everystep_requests_accepted"].samples}
    assert accepted == {"static": 0, "continuous": 1}
    [info] = families["everystep_info"].samples
    assert info.labels["version"] == __version__


# --- the step log --------------------------------------------------------------------------------
async def test_steps_are_paged(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    await engine.step(*range(30))
    first = (await client.get("/steps", params={"limit": 20})).json()
    assert [step["step"] for step in first["steps"]] == list(range(20))
    rest = (await client.get("/steps", params={"since": first["next"]})).json()
    assert [step["step"] for step in rest["steps"]] == list(range(20, 30))
    assert (await client.get("/steps", params={"since": rest["next"]})).json() == {"steps": [], "next": 29}


async def test_a_page_is_json_with_the_contract_s_fields(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.observer.step(output(0, rows=[row(1, "a")], line=[waiting("b", "no_seat", -0.5)]))
    reply = await client.get("/steps")
    assert reply.headers["content-type"] == "application/json"
    [step] = reply.json()["steps"]
    assert set(step) == {
        "step", "policy", "start_s", "end_s", "shape", "rows", "waiting", "blocks_used", "blocks_total",
    }  # fmt: skip
    assert step["waiting"][0]["waited_s"] == 0.5


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=-5", "limit"), ("since=-2", "since")],
)
async def test_numbers_out_of_range_are_refused_by_name(client: httpx.AsyncClient, query: str, param: str) -> None:
    reply = await client.get(f"/steps?{query}")
    assert reply.status_code == 400
    assert reply.json()["param"] == param
    assert query.split("=")[1] in reply.json()["message"]


@pytest.mark.parametrize("path", ["/steps?limit=many", "/steps?since=1.5", "/steps/stream?since=x"])
async def test_what_is_no_number_is_refused(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 422


async def test_the_trace_is_a_download(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    await engine.step(*range(12))
    reply = await client.get("/steps/trace")
    assert reply.headers["content-disposition"] == 'attachment; filename="everystep-trace.json"'
    slices = [event for event in reply.json()["traceEvents"] if event.get("cat") == "step"]
    assert [event["name"] for event in slices] == [f"step {number}" for number in range(12)]


# --- one request ---------------------------------------------------------------------------------
async def test_a_request_s_life_is_told(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.observer.accepted(submit("chat-7-0", request_id="chat-7"))
    engine.observer.finished("chat-7-0", FinishReason.ABORTED, 3.0)
    told = (await client.get("/requests/chat-7")).json()
    assert told["request_id"] == "chat-7"
    assert told["sequences"][0]["finish"] == "aborted"


async def test_an_unknown_request_is_not_found(client: httpx.AsyncClient) -> None:
    reply = await client.get("/requests/nobody")
    assert reply.status_code == 404
    assert "'nobody'" in reply.json()["message"]


# --- the live stream -----------------------------------------------------------------------------
def live(engine: FakeEngine, since: int | None) -> AsyncIterator[bytes]:
    """As the route starts it."""
    return live_steps(engine, SharedSteps(engine.observer.step_log), since)


async def take(events: AsyncIterator[bytes], count: int) -> list[tuple[str | None, Any]]:
    """Some events as (event, data)."""
    taken = []
    for _ in range(count):
        text = (await asyncio.wait_for(anext(events), 10)).decode()
        assert text.endswith("\n\n")
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        taken.append((fields.get("event"), json.loads(fields["data"])))
    return taken


def numbers(events: list[tuple[str | None, Any]]) -> list[int]:
    assert all(kind is None for kind, _ in events)
    return [data["step"] for _, data in events]


async def test_a_stream_starts_from_now_and_waits_for_what_comes(engine: FakeEngine) -> None:
    await engine.step(0, 1, 2)
    events = live(engine, None)
    first = asyncio.ensure_future(take(events, 2))
    await engine.is_awaited.wait()
    assert not first.done()
    await engine.step(3, 4)
    assert numbers(await first) == [3, 4]


async def test_a_stream_starts_after_a_step_and_goes_on_live(engine: FakeEngine) -> None:
    await engine.step(*range(600))
    events = live(engine, 20)
    assert numbers(await take(events, 579)) == list(range(21, 600))
    await engine.step(600)
    assert numbers(await take(events, 1)) == [600]


async def test_a_reader_that_asks_for_forgotten_steps_is_told_which_are_gone() -> None:
    engine = FakeEngine(step_log_size=10)
    await engine.step(*range(100))
    first = engine.observer.step_log.first_step
    assert first is not None
    [(kind, skipped), (_, step)] = await take(live(engine, 4), 2)
    assert (kind, skipped) == ("skipped", {"first": 5, "last": first - 1})
    assert step["step"] == first


async def test_a_slow_live_reader_skips_ahead_and_is_told_so(engine: FakeEngine) -> None:
    await engine.step(0)
    events = live(engine, -1)
    assert numbers(await take(events, 1)) == [0]
    await engine.step(*range(1, 1000))
    [(kind, skipped), (_, step)] = await take(events, 2)
    assert (kind, skipped) == ("skipped", {"first": 1, "last": 999 - MAX_LAG_STEPS})
    assert step["step"] == 1000 - MAX_LAG_STEPS


async def test_readers_at_different_places_of_the_same_stream_are_all_told_everything(engine: FakeEngine) -> None:
    shared = SharedSteps(engine.observer.step_log)
    await engine.step(*range(40))
    early, late = live_steps(engine, shared, 3), live_steps(engine, shared, 30)
    assert numbers(await take(late, 5)) == list(range(31, 36))
    assert numbers(await take(early, 30)) == list(range(4, 34))
    await engine.step(*range(40, 60))
    assert numbers(await take(late, 24)) == list(range(36, 60))
    assert numbers(await take(early, 26)) == list(range(34, 60))


async def test_a_reader_from_before_a_restart_goes_on_with_what_there_is(engine: FakeEngine) -> None:
    await engine.step(0, 1)
    first = asyncio.ensure_future(take(live(engine, 7000), 1))
    await engine.is_awaited.wait()
    await engine.step(2)
    assert numbers(await first) == [2]


class Listener:
    """An ASGI client of one request that leaves when told."""

    def __init__(self, app: FastAPI, path: str, query: str = "", headers: dict[str, str] | None = None) -> None:
        self.scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
            "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(key.encode(), value.encode()) for key, value in (headers or {}).items()],
            "client": ("test", 1), "server": ("test", 80),
        }  # fmt: skip
        self.has_left = asyncio.Event()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.task = asyncio.ensure_future(self._serve(app))
        self._has_asked = False

    async def _serve(self, app: Callable[..., Awaitable[None]]) -> None:
        await app(self.scope, self._receive, self.sent.put)

    async def _receive(self) -> dict[str, Any]:
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), 10)


async def test_the_stream_route_sends_each_step_as_an_event_until_the_client_leaves(engine: FakeEngine) -> None:
    await engine.step(0, 1)
    listener = Listener(make_app(engine), "/steps/stream", "since=0")
    start = await listener.next()
    assert start["status"] == 200
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert b"connection" not in dict(start["headers"])
    for number in (1, 2):
        fields = (await listener.next())["body"].decode().split("\n")
        assert fields[0] == f"id: {number}"
        assert json.loads(fields[1].removeprefix("data: "))["step"] == number
        assert fields[2:] == ["", ""]
        if number == 1:
            await engine.step(2)
    listener.has_left.set()
    await asyncio.wait_for(listener.task, 10)


async def test_a_client_that_reconnects_goes_on_after_the_last_event_it_saw(engine: FakeEngine) -> None:
    await engine.step(*range(6))
    listener = Listener(make_app(engine), "/steps/stream", "since=0", {"last-event-id": "3"})
    await listener.next()
    assert (await listener.next())["body"].startswith(b"id: 4\n")
    listener.has_left.set()
    await asyncio.wait_for(listener.task, 10)
