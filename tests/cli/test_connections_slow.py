"""Clients that send slowly or read slowly: bounded in memory and in time, and no burden to their neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from api.harness import FOREVER
from api.test_api_disconnects import outcomes
from cli.listening import KEY, Listening, listening
from cli.wire import Reply, Wire, request
from everystep.http_deadlines import Deadline, WriteStall
from everystep.http_protocol import HttpConnection

TIMEOUT_S = 0.3
NARROW = 4096  # a client's read buffer, so that little is enough to fill it
HIGH_WATER = 65536  # asyncio's own bound on what a transport holds before it asks to pause
BODY = {"prompts": ["a b c"], "max_tokens": 3}
ENDLESS = {"model": "tiny", "prompt": "x", "n": 64, "logprobs": 1, "max_tokens": FOREVER, "ignore_eos": True}
STREAMS = {
    "completions": request("POST", "/v1/completions", {**ENDLESS, "stream": True}, {"x-api-key": KEY}),
    "steps": request("GET", "/steps/stream?since=-1", None, {"x-api-key": KEY}),
}


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with listening(client_timeout=TIMEOUT_S) as ready:
        yield ready


def connection_of(server: Listening) -> HttpConnection:
    (connection,) = server.http.server_state.connections
    return connection


async def read(wire: Wire) -> Reply:
    return await asyncio.to_thread(wire.read_reply)


# --- slow senders --------------------------------------------------------------------------------
WHOLE = request("POST", "/generate", BODY, {"x-api-key": KEY})
HEAD = WHOLE.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


@pytest.mark.parametrize("part", [b"G", WHOLE[:40], HEAD, WHOLE[:-1]], ids=["a byte", "headers", "no body", "body"])
async def test_a_request_that_doesnt_arrive_in_time_gets_408_and_the_connection_ends(
    server: Listening, part: bytes
) -> None:
    with Wire(server.url) as wire:
        wire.send(part)
        reply = await read(wire)
        assert (reply.status, reply.error["type"]) == (408, "client_too_slow")
        assert "0.3 s" in reply.error["message"]
        assert reply.headers["connection"] == "close"
        assert await asyncio.to_thread(wire.read_to_end) == b""
    await server.until(lambda: server.num_open == 0 and not server.http.server_state.tasks)
    assert (await outcomes(server.app))["everystep_requests_accepted_total"] == 0


async def test_a_client_that_sends_a_byte_now_and_then_gains_no_time(server: Listening) -> None:
    """The deadline is the request's, not a byte's."""
    with Wire(server.url) as wire:
        answered = asyncio.create_task(read(wire))
        wire.send(HEAD[:-2] + b"x-more: ")
        while not answered.done():
            await asyncio.sleep(0.01)
            wire.send(b"x")
        assert answered.result().status == 408


async def test_a_connection_that_never_sends_a_byte_is_closed_without_a_word(server: Listening) -> None:
    with Wire(server.url) as wire:
        assert await asyncio.to_thread(wire.read_to_end) == b""


async def test_the_time_for_the_next_request_begins_with_its_first_byte(server: Listening) -> None:
    with Wire(server.url) as wire:
        wire.send(WHOLE)
        assert (await read(wire)).status == 200
        await asyncio.sleep(2 * TIMEOUT_S)  # idle for longer than a request may take
        wire.send(WHOLE)
        assert (await read(wire)).status == 200
        wire.send(WHOLE[:20])
        assert (await read(wire)).status == 408


async def test_a_long_answer_isnt_held_against_the_client(server: Listening) -> None:
    server.app.runner.hold()
    with Wire(server.url) as wire:
        wire.send(WHOLE)
        await server.app.run_steps(1)
        await asyncio.sleep(2 * TIMEOUT_S)  # longer than a client may take
        server.app.runner.release()
        assert (await read(wire)).status == 200


# --- slow readers --------------------------------------------------------------------------------
async def make_steps(server: Listening, *, while_open: bool) -> None:
    while while_open and server.num_open:
        await server.app.complete("more steps", max_tokens=40, ignore_eos=True)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_nobody_reads_is_bounded_and_ends_with_its_neighbour_unharmed(
    server: Listening, name: str
) -> None:
    neighbour = asyncio.create_task(server.app.complete("the neighbour", max_tokens=FOREVER, ignore_eos=True))
    with Wire(server.url, read_buffer=NARROW) as wire:
        wire.send(STREAMS[name])
        await server.until(lambda: server.num_open == 1)
        connection, num_bytes = connection_of(server), 0
        feeding = asyncio.create_task(make_steps(server, while_open=name == "steps"))
        while server.num_open:
            num_bytes = max(num_bytes, connection.transport.get_write_buffer_size())
            await asyncio.sleep(0)
        await feeding
        assert HIGH_WATER < num_bytes < 2 * HIGH_WATER
    assert len((await neighbour).json()["choices"]) == 1
    found = await outcomes(server.app)
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0
    assert found["length"] + found["aborted"] == found["everystep_requests_accepted_total"]


async def test_the_seats_of_a_client_that_reads_nothing_are_free_when_its_connection_has_ended(
    server: Listening,
) -> None:
    server.app.runner.hold()
    with Wire(server.url, read_buffer=NARROW) as wire:
        wire.send(STREAMS["completions"])
        await server.until(lambda: server.num_open == 1)
        connection = connection_of(server)
        while not connection.flow.write_paused:
            await server.app.run_steps(1)
        await server.until(lambda: server.num_open == 0)
        while (found := await outcomes(server.app))["aborted"] < 64:
            await asyncio.sleep(0)
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0


async def test_an_answer_in_one_piece_that_nobody_reads_ends_too(server: Listening) -> None:
    """The step log as a download: larger than every buffer on the way."""
    await server.app.complete("x", max_tokens=100, n=32, ignore_eos=True)
    with Wire(server.url, read_buffer=NARROW) as wire:
        wire.send(request("GET", "/steps/trace", None, {"x-api-key": KEY}))
        await server.until(lambda: server.num_open == 1)
        await server.until(lambda: server.num_open == 0)
        with pytest.raises((EOFError, ConnectionError)):
            await read(wire)


async def test_a_client_that_reads_late_gets_all() -> None:
    async with listening() as server:
        await server.app.complete("x", max_tokens=100, n=32, ignore_eos=True)
        with Wire(server.url, read_buffer=NARROW) as wire:
            wire.send(request("GET", "/steps/trace", None, {"x-api-key": KEY}))
            await server.until(lambda: server.num_open == 1)
            connection = connection_of(server)
            await server.until(lambda: connection.flow.write_paused)
            slow = (await read(wire)).json()
        assert slow == (await server.app.http.get("/steps/trace")).json()


async def test_leaving_what_was_answered_unread_doesnt_keep_a_connection(server: Listening) -> None:
    """A refusal is small: it fits the kernel.  The connection ends even if the client never reads nor closes."""
    with Wire(server.url) as wire:
        wire.send(b"nonsense\r\n\r\n" + b"x" * 100_000)
        await server.until(lambda: server.num_open == 1)
        await server.until(lambda: server.num_open == 0)


# --- timers, without time ------------------------------------------------------------------------
class Clock(asyncio.BaseEventLoop):
    """A loop of which only the timers are used; the test says when they're due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> None:
        self.now_s += by_s
        due = sorted(timer for timer in self._scheduled if timer.when() <= self.now_s and not timer.cancelled())
        for timer in due:
            self._scheduled.remove(timer)
            timer._run()


class Buffer(asyncio.WriteTransport):
    """Holds what a client hasn't taken."""

    num_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.num_bytes


@pytest.fixture
def clock() -> Clock:
    return Clock()


def counting() -> tuple[list[int], Callable[[], None]]:
    calls: list[int] = []
    return calls, lambda: calls.append(1)


def test_a_deadline_is_that_of_its_last_setting(clock: Clock) -> None:
    calls, act = counting()
    deadline = Deadline(clock)
    deadline.set(10, act)
    clock.advance(9)
    deadline.set(10, act)
    clock.advance(9)
    assert deadline.is_set
    assert calls == []
    clock.advance(1)
    assert not deadline.is_set
    assert calls == [1]
    deadline.set(1, act)
    deadline.clear()
    clock.advance(100)
    assert calls == [1]


def test_a_stall_is_a_whole_timeout_without_a_byte_taken(clock: Clock) -> None:
    calls, act = counting()
    buffer = Buffer()
    stall = WriteStall(clock, buffer, 10, act)
    buffer.num_bytes = 100
    stall.start()
    for num_bytes in (99, 50, 1):  # a byte is progress
        buffer.num_bytes = num_bytes
        clock.advance(10)
        assert calls == []
    stall.start()  # again: no new time
    clock.advance(10)
    assert calls == [1]


def test_a_buffer_that_empties_is_no_stall(clock: Clock) -> None:
    calls, act = counting()
    buffer = Buffer()
    stall = WriteStall(clock, buffer, 10, act)
    buffer.num_bytes = 100
    stall.start()
    buffer.num_bytes = 0
    clock.advance(10)
    buffer.num_bytes = 100
    clock.advance(100)
    assert calls == []
    stall.start()
    stall.stop()
    clock.advance(100)
    assert calls == []
