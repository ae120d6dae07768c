"""A stream whose client takes nothing in: bounded in memory, over when the connection is, and nobody else's trouble."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from sse_starlette.sse import AppStatus

from api.harness import FOREVER, Call, Server, serving
from api.test_api_disconnects import KEY, REQUESTS, outcomes

STREAMS = [name for name in REQUESTS if "stream" in name]


class Stuck(Call):
    """A client that reads so many messages and then no more: ``send`` never returns, as with a full socket."""

    num_read = 2

    async def _send(self, message: Mapping[str, Any]) -> None:
        if self.num_read == 0:
            self.is_stuck.set()
            await asyncio.Event().wait()
        self.num_read -= 1
        await super()._send(message)

    def __post_init__(self) -> None:
        self.is_stuck = asyncio.Event()
        super().__post_init__()


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    async with serving(api_key=("key",)) as ready:
        ready.http.headers.update(KEY)
        yield ready


def stuck(server: Server, name: str, **fields: Any) -> Stuck:
    path, body = REQUESTS[name]
    return Stuck(server.app, path, json.dumps({**body, **fields}).encode(), KEY)


@pytest.mark.parametrize("name", STREAMS)
async def test_the_end_of_the_connection_ends_the_generation_although_its_send_never_returns(
    locked: Server, name: str
) -> None:
    locked.runner.hold()
    reader = stuck(locked, name)
    await locked.run_steps(3)
    await asyncio.wait_for(reader.is_stuck.wait(), 30)
    reader.leave()  # what the server says when it cuts a connection that takes nothing in
    await asyncio.wait_for(reader.task, 30)
    found = await outcomes(locked)
    assert found["aborted"] == found["everystep_requests_accepted_total"] > 0
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0


@pytest.mark.parametrize("name", STREAMS)
async def test_its_deadline_holds_while_it_is_stuck_and_its_seat_is_free(locked: Server, name: str) -> None:
    locked.runner.hold()
    reader = stuck(locked, name, timeout_s=0.3)
    async with asyncio.timeout(30):
        while (found := await outcomes(locked)).get("timeout", 0) == 0:
            await asyncio.sleep(0)
    assert found["timeout"] == found["everystep_requests_accepted_total"]
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0
    reader.leave()
    await asyncio.wait_for(reader.task, 30)


async def test_what_waits_for_a_reader_is_its_own_tokens_at_most_and_neighbours_get_theirs(locked: Server) -> None:
    reader = stuck(locked, "completions, streamed", max_tokens=FOREVER, n=3, policy="continuous")
    await asyncio.wait_for(reader.is_stuck.wait(), 30)
    reply = await locked.post("/generate_stream", prompt="neighbour", max_tokens=40, ignore_eos=True)
    assert reply.text.count("data: ") > 0
    while (await outcomes(locked))["length"] < 4:
        await asyncio.sleep(0)  # the stuck one runs to its own end
    (held,) = [task for task in asyncio.all_tasks() if task is reader.task]
    assert not held.done()
    reader.leave()
    await asyncio.wait_for(reader.task, 30)


async def test_a_reader_of_the_live_step_log_that_is_stuck_has_nothing_queued_for_it(locked: Server) -> None:
    """Its steps are read from the ring when it takes them, so what is kept doesn't grow with its delay."""
    num_sent, is_stuck, has_left = 0, asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal num_sent
        num_sent += 1
        if num_sent == 3:
            is_stuck.set()
            await asyncio.Event().wait()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/steps/stream", "raw_path": b"/steps/stream", "root_path": "",
        "query_string": b"since=-1", "headers": [(b"x-api-key", b"key")], "server": ("tiny", 80), "client": ("x", 1),
    }  # fmt: skip
    task = asyncio.create_task(locked.app(scope, receive, send))
    for _ in range(5):
        await locked.post("/basic_generate", prompt="x", max_tokens=100, ignore_eos=True, policy="continuous")
    await asyncio.wait_for(is_stuck.wait(), 30)
    assert num_sent == 3
    has_left.set()
    await asyncio.wait_for(task, 30)


class Watcher(Call):
    """A reader of the live step log."""

    def _scope(self) -> dict[str, Any]:
        return super()._scope() | {"method": "GET", "query_string": b"since=-1"}


async def test_a_server_that_ended_before_in_this_process_does_not_end_the_live_step_log_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", True)  # what the end of a server leaves
    async with serving() as server:
        reader = Watcher(server.app, "/steps/stream", b"")
        await server.post("/basic_generate", prompt="x", max_tokens=3)
        await asyncio.wait_for(reader.wait_for(b"\ndata: {"), 30)
        reader.leave()
        await asyncio.wait_for(reader.task, 30)
