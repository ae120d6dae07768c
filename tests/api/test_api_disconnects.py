"""Whoever leaves is forgotten at once: running or queued, streamed or not, with keys on, whatever the endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.harness import FOREVER, Call, Server, serving

MESSAGES = [{"role": "user", "content": "Hi"}]
ENDLESS = {"max_tokens": FOREVER, "ignore_eos": True}
REQUESTS = {
    "basic_generate": ("/basic_generate", {"prompt": "x", **ENDLESS}),
    "generate": ("/generate", {"prompts": ["x", "y", "z"], **ENDLESS}),
    "generate_stream": ("/generate_stream", {"prompt": "x", **ENDLESS}),
    "completions": ("/v1/completions", {"model": "tiny", "prompt": ["x", "y"], "n": 2, **ENDLESS}),
    "completions, streamed": ("/v1/completions", {"model": "tiny", "prompt": "x", "n": 3, "stream": True, **ENDLESS}),
    "chat": ("/v1/chat/completions", {"model": "tiny", "messages": MESSAGES, "n": 2, **ENDLESS}),
    "chat, streamed": ("/v1/chat/completions", {"model": "tiny", "messages": MESSAGES, "stream": True, **ENDLESS}),
}
KEY = {"x-api-key": "key"}


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    """With a key, so that every layer is in place."""
    async with serving(api_key=("key",)) as ready:
        ready.http.headers.update(KEY)
        yield ready


def call(server: Server, name: str) -> Call:
    path, body = REQUESTS[name]
    return Call(server.app, path, json.dumps(body).encode(), KEY)


async def outcomes(server: Server) -> dict[str, float]:
    """Sequences by their end, and those accepted, running and waiting, over all lanes, as a scrape has them."""
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families((await server.http.get("/metrics")).text):
        for sample in family.samples:
            if sample.name == "everystep_requests_total":
                name = sample.labels["outcome"]
            elif sample.name.startswith(("everystep_requests_accepted", "everystep_num_requests")):
                name = sample.name
            else:
                continue
            totals[name] = totals.get(name, 0) + sample.value
    return totals


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_leaves_while_its_request_runs_frees_its_seats_within_a_step(
    locked: Server, name: str
) -> None:
    locked.runner.hold()
    leaving = call(locked, name)
    await locked.run_steps(2)
    leaving.leave()
    await leaving.task
    found = await outcomes(locked)
    assert found["aborted"] == found["everystep_requests_accepted_total"] > 0
    assert found["everystep_num_requests_running"] == found["everystep_num_requests_waiting"] == 0
    locked.runner.release()
    await locked.post("/basic_generate", prompt="the next", max_tokens=1, policy="continuous")
    last = locked.runner.last_seen.sequence_id
    # The third step had begun when the client left; the abort is taken in at its end.
    assert max(num for who, num in locked.runner.num_steps_of.items() if who != last) <= 3
    steps = (await locked.http.get("/steps")).json()["steps"]
    assert {row["sequence_id"] for row in steps[-1]["rows"]} == {last}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_client_that_leaves_while_its_request_waits_is_forgotten_before_it_runs(
    locked: Server, name: str
) -> None:
    locked.runner.hold()
    path, body = REQUESTS[name]
    lane = {"basic_generate": "static", "generate": "static", "generate_stream": "per_token"}.get(name, "static")
    blockers = await locked_lane(locked, lane)
    waiting = Call(locked.app, path, json.dumps({**body, "policy": lane}).encode(), KEY)
    num_accepted = (await outcomes(locked))["everystep_requests_accepted_total"]
    while (await outcomes(locked))["everystep_requests_accepted_total"] == num_accepted:
        await asyncio.sleep(0)  # a chat's template is read in a thread
    waiting.leave()
    await waiting.task
    locked.runner.release()
    await blockers
    found = await outcomes(locked)
    assert found["length"] == 4
    assert found["aborted"] == found["everystep_requests_accepted_total"] - 4
    assert len(locked.runner.seen) == 4  # only those of the blockers ever ran


async def locked_lane(server: Server, lane: str) -> asyncio.Task[None]:
    """Fill the lane's four seats, and wait until they are taken."""

    async def post() -> None:
        await server.post("/generate", prompts=list("abcd"), policy=lane, max_tokens=5, ignore_eos=True)

    task = asyncio.create_task(post())
    await server.run_steps(1)
    return task


async def test_a_client_that_leaves_before_the_first_event_of_its_stream_is_forgotten_too(locked: Server) -> None:
    locked.runner.hold()
    gone = call(locked, "chat, streamed")
    gone.leave()
    await gone.task
    assert (await outcomes(locked))["everystep_requests_accepted_total"] == (await outcomes(locked))["aborted"] == 1


async def test_leaving_without_a_stream_is_logged_as_499(locked: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="everystep")
    locked.runner.hold()
    gone = call(locked, "basic_generate")
    await locked.run_steps(1)
    gone.leave()
    await gone.task
    assert gone.status == 499
    assert "the client left (499)" in caplog.text


async def test_accepted_are_those_who_ended_after_any_mixture(locked: Server) -> None:
    leaving = [call(locked, name) for name in REQUESTS]
    staying = [
        asyncio.create_task(locked.post("/generate", prompts=["a", "b"], max_tokens=n, policy=lane, ignore_eos=True))
        for n, lane in enumerate(("static", "per_token", "continuous"), start=2)
    ]
    await locked.engine.wait_for_step(2)
    for gone in leaving:
        gone.leave()
    await asyncio.gather(*(gone.task for gone in leaving), *staying)
    found = await outcomes(locked)
    ended = sum(found[name] for name in ("stop", "length", "aborted", "failed", "timeout"))
    assert found["everystep_requests_accepted_total"] == ended == 1 + 3 + 1 + 4 + 3 + 2 + 1 + 6
    assert found["length"] >= 6
