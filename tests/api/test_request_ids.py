"""``X-Request-Id`` in and out, on every reply there is, and on every line that a request makes in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import httpx
import pytest

from api.harness import FOREVER, Call, Server, serving
from everystep.observe.logs import JsonFormatter

ID = {"x-request-id": "mine-01"}


@pytest.fixture
def lines() -> Iterator[list[dict[str, str]]]:
    """The package's log as ``--log-json`` writes it."""
    found: list[dict[str, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    logger = logging.getLogger("everystep")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


async def replies(server: Server) -> list[tuple[int, httpx.Response]]:
    """One of each kind, with the status that it must have."""
    http, long = server.http, {"prompt": "x" * 2**20}
    return [
        (200, await http.get("/version", headers=ID)),
        (200, await http.get("/metrics", headers=ID)),
        (200, await http.post("/basic_generate", json={"prompt": "x", "max_tokens": 1}, headers=ID)),
        (200, await http.post("/generate_stream", json={"prompt": "x", "max_tokens": 1}, headers=ID)),
        (400, await http.post("/basic_generate", json={"prompt": "x", "max_tokens": -1}, headers=ID)),
        (404, await http.get("/nope", headers=ID)),
        (405, await http.get("/generate", headers=ID)),
        (413, await http.post("/basic_generate", json=long, headers=ID)),
        (422, await http.post("/basic_generate", content=b"{", headers=ID | {"content-type": "application/json"})),
    ]


async def test_every_kind_of_reply_has_the_id_that_the_client_gave() -> None:
    async with serving(max_body_mib=0.5) as server:
        for status, reply in await replies(server):
            assert (reply.status_code, reply.headers["x-request-id"]) == (status, "mine-01")


async def test_who_isnt_let_in_has_it_too() -> None:
    async with serving(api_key=("right",)) as server:
        for accept in ("text/html", "*/*"):
            reply = await server.http.get("/", headers=ID | {"accept": accept})
            assert (reply.status_code, reply.headers["x-request-id"]) == (401, "mine-01")


async def test_the_line_of_a_request_that_failed_bears_its_id(server: Server, lines: list[dict[str, str]]) -> None:
    server.runner.hold()
    task = asyncio.create_task(
        server.http.post("/basic_generate", json={"prompt": "x", "max_tokens": 9, "ignore_eos": True}, headers=ID)
    )
    await server.run_steps(1)
    server.runner.fails[server.runner.last_seen.sequence_id] = "the row broke"
    server.runner.release()
    await task
    (line,) = [line for line in lines if "the row broke" in line["message"]]
    assert (line["level"], line["request_id"]) == ("warning", "mine-01")


async def test_the_line_of_a_stream_that_broke_bears_its_id(
    server: Server, lines: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everystep.api.native.TokenEvents.of", lambda self, delta: 1 / 0)
    await server.http.post("/generate_stream", json={"prompt": "x", "max_tokens": 3, "ignore_eos": True}, headers=ID)
    (line,) = [line for line in lines if line["level"] == "error"]
    assert line["request_id"] == "mine-01"
    assert "ZeroDivisionError" in line["exception"]


async def test_the_line_of_a_client_that_left_bears_its_id(server: Server, lines: list[dict[str, str]]) -> None:
    server.runner.hold()
    body = json.dumps({"prompt": "x", "max_tokens": FOREVER, "ignore_eos": True}).encode()
    call = Call(server.app, "/basic_generate", body, ID)
    await server.run_steps(1)
    call.leave()
    await call.task
    (line,) = [line for line in lines if "the client left" in line["message"]]
    assert line["request_id"] == "mine-01"


async def test_lines_of_one_request_never_bear_the_id_of_another(server: Server, lines: list[dict[str, str]]) -> None:
    async def ask(number: int) -> None:
        headers = {"x-request-id": f"ask-{number}"}
        await server.http.post("/basic_generate", json={"prompt": "x", "timeout_s": 1e-6}, headers=headers)

    server.runner.hold()
    await asyncio.gather(*map(ask, range(5)))
    named = [line for line in lines if "request ask-" in line["message"]]
    assert all(line["request_id"] in line["message"] for line in named)


async def test_a_line_of_the_worker_about_rows_that_failed_names_their_sequences(
    server: Server, lines: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(server.runner, "run", broken)
    reply = await server.http.post("/basic_generate", json={"prompt": "x"}, headers=ID)
    assert reply.status_code == 500
    (line,) = [line for line in lines if "fail with it" in line["message"]]
    assert reply.headers["x-generation-id"] in line["message"]
    assert "mine-01" in line["message"]
