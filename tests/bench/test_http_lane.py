"""A lane behind HTTP: what is sent, how the stream is read, what becomes of a server that errs or lies."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest

from everystep.bench.closed import ClosedLoad, run_closed
from everystep.bench.http_lane import HttpLane
from everystep.bench.passes import BenchFailed
from everystep.bench.scrape import prompt_token_ids, read_metrics, seat_steps_between
from everystep.bench.streamed import Stream, read_answers

METRICS = """
everystep_info{{version="1.2",model="m",precision="int8",runner="openvino"}} 1.0
everystep_requests_accepted_total{{policy="static"}} 3.0
everystep_requests_accepted_total{{policy="vllm"}} 0.0
everystep_seat_steps_total{{policy="static",state="working"}} {working}
everystep_seat_steps_total{{policy="static",state="held"}} 0.0
everystep_seat_steps_total{{policy="static",state="empty"}} 4.0
"""
VOCAB_SIZE = 777


class FakeServer:
    """An ASGI app that makes ``num_tokens(max_tokens)`` tokens a prompt and keeps what it was asked."""

    def __init__(self, num_tokens: Callable[[int], int] = lambda asked: asked, status: int = 200) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._num_tokens = num_tokens
        self._status = status
        self._working = 0

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        body = (await receive()).get("body", b"")
        answers = {"/metrics": self._metrics, "/v1/completions": self._completion, "/detokenize": self._detokenize}
        status, words = answers[scope["path"]](json.loads(body) if body else {})
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": words})

    def _metrics(self, body: dict[str, Any]) -> tuple[int, bytes]:
        return 200, METRICS.format(working=float(self._working)).encode()

    def _detokenize(self, body: dict[str, Any]) -> tuple[int, bytes]:
        return (200 if body["tokens"][0] < VOCAB_SIZE else 400), b"{}"

    def _completion(self, body: dict[str, Any]) -> tuple[int, bytes]:
        self.bodies.append(body)
        if self._status != 200:
            return self._status, b'{"error": {"message": "the line is full"}}'
        count = self._num_tokens(body["max_tokens"])
        self._working += count * len(body["prompt"])
        chunks = [
            chunk(index, finish="length" if token == count - 1 else None)
            for token in range(count)
            for index in range(len(body["prompt"]))
        ]
        return 200, b"".join([*chunks, usage(count * len(body["prompt"])), b"data: [DONE]\n\n"])


def chunk(index: int, finish: str | None = None) -> bytes:
    choice = {"index": index, "text": "x", "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], "usage": None}).encode() + b"\n\n"


def usage(num_tokens: int) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {"completion_tokens": num_tokens}}).encode() + b"\n\n"


def lane_of(server: FakeServer) -> HttpLane:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://fake")
    return HttpLane(http, "m", "everystep", "static", "static 4", "a fake")


async def test_a_pass_is_one_greedy_request_with_all_prompts_as_token_ids() -> None:
    server = FakeServer()
    measured = await lane_of(server).measure([[5, 6], [7, 8], [9, 10]], 4)
    (body,) = server.bodies
    assert body["prompt"] == [[5, 6], [7, 8], [9, 10]]
    assert (body["policy"], body["max_tokens"], body["temperature"], body["ignore_eos"]) == ("static", 4, 0, True)
    assert measured.num_tokens == 12
    assert [len(times) for times in measured.arrivals_s] == [4, 4, 4]
    assert measured.wall_s >= max(times[-1] for times in measured.arrivals_s)
    assert measured.seat_steps == {"working": 12, "held": 0, "empty": 0}


async def test_a_server_that_makes_one_token_too_few_gets_no_figure() -> None:
    lane = lane_of(FakeServer(lambda asked: asked - 1))
    load = ClosedLoad((2,), (1,), prompt_tokens=3, max_tokens=5, token_ids=range(100, 200))
    with pytest.raises(BenchFailed, match="static 4 made 6 tokens of 8: not like with like"):
        [cells async for cells in run_closed([lane], load, lambda words: None)]


async def test_a_refusal_is_said_in_the_servers_own_words() -> None:
    with pytest.raises(BenchFailed, match=r"static 4 answers 429: .*the line is full"):
        await lane_of(FakeServer(status=429)).measure([[1]], 2)


async def test_the_vocabularys_end_is_found_by_asking() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(FakeServer()), base_url="http://fake") as http:
        assert await prompt_token_ids(http) == range(VOCAB_SIZE // 2, VOCAB_SIZE)


def test_an_event_arrives_with_the_block_that_completes_it() -> None:
    whole = chunk(0) + chunk(0, "length") + usage(2)
    stream = Stream()
    cut = len(chunk(0)) + 9
    stream.add(0.5, whole[:cut])
    stream.add(2.0, whole[cut:])
    answers = read_answers(stream.events(), 1)
    assert answers.arrivals_s == ((0.5, 2.0),)
    assert answers.num_tokens == 2


def test_pings_and_the_end_mark_are_no_tokens() -> None:
    events = [
        (1.0, b": ping - 2026"),
        (1.5, chunk(0, "length").strip()),
        (2.0, usage(1).strip()),
        (2.0, b"data: [DONE]"),
    ]
    assert read_answers(events, 1).arrivals_s == ((1.5,),)


def test_a_stream_that_fails_midway_is_an_error() -> None:
    events = [(1.0, chunk(0).strip()), (2.0, b'event: error\ndata: {"error": {"message": "the worker died"}}')]
    with pytest.raises(BenchFailed, match="the worker died"):
        read_answers(events, 1)


def test_a_stream_that_ends_early_is_an_error() -> None:
    with pytest.raises(BenchFailed, match="ended with 1 of 2 answers whole"):
        read_answers([(1.0, chunk(0, "length").strip()), (1.0, usage(3).strip())], 2)


def test_a_stream_that_breaks_off_within_an_event_is_an_error() -> None:
    stream = Stream([(1.0, chunk(0)[:-1])])
    with pytest.raises(BenchFailed, match="broke off"):
        stream.events()


def test_metrics_tell_lanes_runner_and_the_seats_between_two_scrapes() -> None:
    before, after = (read_metrics(METRICS.format(working=working)) for working in ("10.0", "52.0"))
    assert after.policies == ("static", "vllm")
    assert (after.runner, after.precision, after.version) == ("openvino", "int8", "1.2")
    assert seat_steps_between(before, after, "static") == {"working": 42, "held": 0, "empty": 0}
    assert seat_steps_between(before, after, "vllm") is None, "it counts no seats"


def test_another_kind_of_server_is_said_to_be_one() -> None:
    with pytest.raises(BenchFailed, match="not an everystep server"):
        read_metrics("vllm:num_requests_running 1.0\n")
