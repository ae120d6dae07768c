"""Whoever leaves a real connection is forgotten within a step: whatever the way, whatever the state."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from api.test_api_disconnects import ENDLESS, REQUESTS, locked_lane, outcomes
from cli.listening import KEY, Listening, listening
from cli.wire import Wire, request
from everystep.http_framing import MAX_HEAD_BYTES

WAYS: dict[str, Callable[[Wire], None]] = {"FIN": Wire.leave, "RST": Wire.reset, "half close": Wire.half_close}
HEALTH = request("GET", "/health")
AHEAD = {
    "nothing": b"",
    "a request": HEALTH,
    "half a request": HEALTH[:20],
    "many requests": HEALTH * 20_000,
    "half a large body": request("POST", "/generate", b"[" * 500_000, {"content-length": "600000"}),
}
STREAM = "completions, streamed"


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with listening() as ready:
        ready.app.runner.hold()
        yield ready


def asked(name: str, **fields: object) -> bytes:
    path, body = REQUESTS[name]
    return request("POST", path, {**body, **fields}, {"x-api-key": KEY})


async def is_forgotten(server: Listening) -> None:
    """Wait until nothing is open; the next request's step shows that it has the server to itself."""
    while (found := await outcomes(server.app))["aborted"] < found["everystep_requests_accepted_total"]:
        await asyncio.sleep(0)
    assert found["aborted"] > 0
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0
    server.app.runner.release()
    await server.app.post("/basic_generate", prompt="the next", max_tokens=1, policy="continuous")
    last = server.app.runner.last_seen.sequence_id
    # The third step had begun when the client left; the abort is taken in at its end.
    assert max(num for who, num in server.app.runner.num_steps_of.items() if who != last) <= 3
    step = (await server.app.http.get("/steps")).json()["steps"][-1]
    assert {row["sequence_id"] for row in step["rows"]} == {last}
    assert step["waiting"] == []
    await server.until(lambda: server.num_open == 0)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_closes_its_socket_while_its_request_runs_frees_its_seats_within_a_step(
    server: Listening, name: str
) -> None:
    with Wire(server.url) as wire:
        wire.send(asked(name))
        await server.app.run_steps(2)
    await is_forgotten(server)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_closes_its_socket_while_its_request_waits_is_forgotten_before_it_runs(
    server: Listening, name: str
) -> None:
    blockers = await locked_lane(server.app, "static")
    with Wire(server.url) as wire:
        num_accepted = (await outcomes(server.app))["everystep_requests_accepted_total"]
        wire.send(asked(name, policy="static"))
        while (await outcomes(server.app))["everystep_requests_accepted_total"] == num_accepted:
            await asyncio.sleep(0)
    while (found := await outcomes(server.app))["everystep_num_requests_waiting"]:
        await asyncio.sleep(0)
    assert found["aborted"] == found["everystep_requests_accepted_total"] - 4
    server.app.runner.release()
    await blockers
    assert len(server.app.runner.seen) == 4  # only those of the blockers ever ran


@pytest.mark.parametrize(
    ("name", "way", "ahead"),
    [
        *(("generate", "FIN", ahead) for ahead in AHEAD),
        *((STREAM, way, "many requests") for way in WAYS),
        *(("chat", way, "nothing") for way in ("RST", "half close")),
    ],
)
async def test_leaving_is_seen_in_every_way_whatever_was_sent_ahead(
    server: Listening, name: str, way: str, ahead: str
) -> None:
    with Wire(server.url) as wire:
        wire.send(asked(name))
        await server.app.run_steps(2)
        await asyncio.to_thread(wire.send, AHEAD[ahead])
        WAYS[way](wire)
        await is_forgotten(server)


@pytest.mark.parametrize("way", WAYS)
async def test_leaving_within_a_body_ends_the_connection_and_nothing_was_accepted(server: Listening, way: str) -> None:
    whole = asked("generate")
    with Wire(server.url) as wire:
        wire.send(whole[:-5])
        await server.until(lambda: len(server.http.server_state.tasks) == 1)
        WAYS[way](wire)
        await server.until(lambda: server.num_open == 0 and not server.http.server_state.tasks)
    assert (await outcomes(server.app))["everystep_requests_accepted_total"] == 0


async def test_leaving_is_seen_while_the_client_reads_nothing(server: Listening) -> None:
    """What is still to be sent would keep a closed connection open; the application learns of it all the same."""
    logprobs = {"logprobs": 1, "n": 64, **ENDLESS}
    body = {"model": "tiny", "prompt": "x", "stream": True, **logprobs}
    with Wire(server.url, read_buffer=4096) as wire:
        wire.send(request("POST", "/v1/completions", body, {"x-api-key": KEY}))
        await server.until(lambda: server.num_open == 1)
        (connection,) = server.http.server_state.connections
        while not connection.flow.write_paused:
            await server.app.run_steps(1)
        wire.half_close()
        while (found := await outcomes(server.app))["aborted"] < found["everystep_requests_accepted_total"]:
            await asyncio.sleep(0)
        assert connection.transport.get_write_buffer_size() > 0


async def test_a_client_that_sends_ahead_without_end_is_cut(server: Listening) -> None:
    max_ahead = int(server.app.engine.settings.max_body_mib * 2**20) + MAX_HEAD_BYTES
    with Wire(server.url) as wire:
        wire.send(asked("generate"))
        await server.app.run_steps(2)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(wire.send, b"x" * (4 * max_ahead))
        await is_forgotten(server)


async def test_the_log_of_steps_shows_what_a_left_list_gave_back(server: Listening) -> None:
    """n > 1 and a list, beside a neighbour: from one step to the next its rows and its blocks are gone."""
    neighbour = asyncio.create_task(server.app.complete("the neighbour", max_tokens=40, ignore_eos=True))
    await server.app.run_steps(1)
    with Wire(server.url) as wire:
        wire.send(asked("completions", prompt=["a" * 40, "b" * 40], n=3))
        while len(server.app.runner.seen) < 7:
            await server.app.run_steps(1)
        alone = server.app.engine.observer.step_log.last_step
    while (await outcomes(server.app))["aborted"] < 6:
        await asyncio.sleep(0)
    server.app.runner.release()
    await neighbour
    steps = {step["step"]: step for step in json.loads((await server.app.http.get("/steps")).text)["steps"]}
    with_list, after = steps[alone], steps[alone + 2]  # one step was under way
    assert (len(with_list["rows"]), len(after["rows"])) == (7, 1)
    assert after["blocks_used"] < with_list["blocks_used"]
    assert after["blocks_used"] <= 2  # of 32 tokens: the neighbour's own


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the options are Linux's")
@pytest.mark.parametrize(
    ("timeout_s", "idle_s", "interval_s", "lost_ms"), [(9.5, 10, 4, 20_000), (1e9, 32767, 10923, 65_534_000)]
)
async def test_the_kernel_gives_up_a_client_whose_network_is_gone(
    timeout_s: float, idle_s: int, interval_s: int, lost_ms: int
) -> None:
    async with listening(client_timeout=timeout_s) as server:
        with Wire(server.url) as wire:
            wire.send(HEALTH)
            await server.until(lambda: server.num_open == 1)
            (connection,) = server.http.server_state.connections
            sock = connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [
                idle_s,
                interval_s,
                3,
                lost_ms,
            ]
