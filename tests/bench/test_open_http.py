"""An open load over HTTP: times from the schedule, refusals counted, and other work than asked is an error."""

from __future__ import annotations

import httpx
import pytest

from bench.virtual_time import StreamingServer, VirtualClock, event, piece, usage
from everystep.analysis.load import Arrival
from everystep.bench.apis import Completions, NativeStream
from everystep.bench.open_http import pass_of, serve_over_http
from everystep.bench.passes import BenchFailed
from everystep.bench.served import Served, failures

LOAD = [Arrival(0.0, 2, 3), Arrival(1.0, 2, 3), Arrival(10.0, 2, 1)]
PROMPTS = [[5, 6], [7, 8], [9, 10]]


async def serve(server: StreamingServer, load: list[Arrival] = LOAD) -> Served:
    async with httpx.AsyncClient(transport=server, base_url="http://fake") as http:
        return await serve_over_http(http, Completions("m"), load, PROMPTS[: len(load)], "a fake", server.clock)


async def test_ttft_tpot_and_e2e_are_those_of_the_servers_clock() -> None:
    served = await serve(StreamingServer(VirtualClock(), first_s=2.0, gap_s=0.25))
    first, second, third = served.outcome.answers
    assert first.token_times_s == pytest.approx((2.0, 2.25, 2.5))
    assert second.token_times_s == pytest.approx((3.0, 3.25, 3.5))
    assert (second.ttft_s, second.tpot_s, second.e2e_s) == pytest.approx((2.0, 0.25, 2.5))
    assert (third.ttft_s, third.tpot_s) == (pytest.approx(2.0), None)
    assert served.outcome.wall_s == pytest.approx(12.0)
    assert served.num_prompt_tokens == 9, "three each, as this server counts"


async def test_what_the_client_sends_late_is_still_measured_from_when_it_was_due() -> None:
    server = StreamingServer(VirtualClock(overshoot_s=0.5), first_s=2.0)
    served = await serve(server)
    assert [at_s - 1000.0 for at_s in server.sent_at_s] == pytest.approx([0.0, 1.5, 10.5])
    assert [answer.ttft_s for answer in served.outcome.answers] == pytest.approx([2.0, 2.5, 2.5])
    assert served.client.lags_s == pytest.approx((0.0, 0.5, 0.5))


async def test_each_request_asks_for_its_own_number_of_tokens_greedily_and_to_the_end() -> None:
    server = StreamingServer(VirtualClock())
    await serve(server)
    assert [(body["prompt"], body["max_tokens"]) for body in server.bodies] == [([5, 6], 3), ([7, 8], 3), ([9, 10], 1)]
    assert all((body["temperature"], body["ignore_eos"]) == (0, True) for body in server.bodies)


async def test_refusals_and_failures_are_counted_by_kind_and_the_others_are_measured() -> None:
    server = StreamingServer(VirtualClock())
    replies = iter([
        httpx.Response(429, json={"error": {"message": "the line is full"}}),
        server.stream(3),
        server.stream_of([(0.5, piece()), (0.5, event({"error": {"message": "the worker died"}}))]),
    ])  # fmt: skip
    server.answer = lambda body: next(replies)
    served = await serve(server)
    assert failures(served) == {"429": 1, "failed": 1}
    refused, whole, failed = served.outcome.answers
    assert refused.error is not None
    assert "the line is full" in refused.error
    assert whole.is_whole
    assert failed.error is not None
    assert "the worker died" in failed.error
    with pytest.raises(BenchFailed, match=r"a fake: 2 of 3 prompts failed: 429: .*the line is full"):
        pass_of(served, "a fake")


async def test_a_stream_that_breaks_off_and_a_connection_that_fails_are_failures() -> None:
    server = StreamingServer(VirtualClock())

    def answer(body: dict[str, object]) -> httpx.Response:
        if len(server.bodies) == 1:
            return server.stream_of([(0.5, piece())])
        raise httpx.ConnectError("nobody there")

    server.answer = answer
    assert failures(await serve(server)) == {"broken": 1, "connection": 2}


async def test_too_few_tokens_are_not_like_with_like() -> None:
    server = StreamingServer(VirtualClock())
    server.answer = lambda body: server.stream(2)
    with pytest.raises(BenchFailed, match="a fake made 2 tokens of 3: not like with like"):
        await serve(server)


async def test_an_empty_last_chunk_behind_the_last_token_is_no_token() -> None:
    """llama.cpp says in a chunk of its own why it stopped."""
    server = StreamingServer(VirtualClock())
    blocks = [(1.0, piece()), (1.0, piece()), (1.0, piece("length", text="") + usage(2, 2))]
    server.answer = lambda body: server.stream_of(blocks)
    served = await serve(server, [Arrival(0.0, 2, 2)])
    assert served.outcome.answers[0].token_times_s == pytest.approx((1.0, 2.0))


async def test_the_native_stream_counts_pieces_and_its_end_is_the_answers_end() -> None:
    server = StreamingServer(VirtualClock())
    token = event({"token": "ab", "sequence_id": "1"})
    server.answer = lambda body: server.stream_of([(1.0, token), (0.5, token)])
    load = [Arrival(0.0, 2, 3)]
    async with httpx.AsyncClient(transport=server, base_url="http://fake") as http:
        served = await serve_over_http(http, NativeStream("static"), load, [[7, 8]], "a fake", server.clock)
    (answer,) = served.outcome.answers
    assert answer.token_times_s == pytest.approx((1.0, 1.5))
    assert answer.is_whole, "a token without text of its own came with the next"
    (body,) = server.bodies
    assert (body["policy"], body["max_tokens"], len(str(body["prompt"]).split())) == ("static", 3, 2)
