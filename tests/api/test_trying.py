"""``/try``: prompts that arrive together, each with its own length, on one stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from api.harness import Server, serving


def told(reply: httpx.Response) -> list[tuple[str, Any]]:
    """Event name and data of each event."""
    events = []
    for block in reply.text.split("\n\n"):
        if block and not block.startswith(":"):
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            events.append((fields.get("event", "message"), json.loads(fields["data"])))
    return events


def prompts(*lengths: int) -> list[dict[str, Any]]:
    return [{"prompt": f"prompt {n}", "max_tokens": length} for n, length in enumerate(lengths)]


async def test_each_prompt_ends_at_its_own_length_and_the_stream_says_so_and_then_that_it_is_done() -> None:
    async with serving() as server:
        reply = await server.post("/try", prompts=prompts(3, 7, 1))
        *news, last = told(reply)
        assert last == ("done", {})
        counts, ends = [0, 0, 0], {}
        for name, event in news:
            assert name == "message"
            counts[event["index"]] += event["tokens"]
            if event["finish"]:
                ends[event["index"]] = event["finish"]
        assert counts == [3, 7, 1]
        assert ends == {0: "length", 1: "length", 2: "length"}


async def test_its_prompts_arrive_together_so_that_rounds_of_the_static_lane_are_full() -> None:
    async with serving(static_batch_size=4) as server:
        reply = await server.post("/try", prompts=prompts(2, 9, 2, 2, 2, 5), policy="static")
        assert told(reply)[-1] == ("done", {})
        steps = server.engine.observer.step_log.since(-1, 100)["steps"]
        assert [len(step["rows"]) for step in steps] == [4] * 9 + [2] * 5
        assert [sum(row["phase"] == "held" for row in step["rows"]) for step in steps] == [0] * 2 + [3] * 7 + [
            0
        ] * 2 + [1] * 3
        assert {row["request_id"] for step in steps for row in step["rows"]} == {reply.headers["x-generation-id"]}


async def test_the_texts_are_those_of_one_prompt_alone(server: Server) -> None:
    together = await server.post("/try", prompts=prompts(5, 8))
    for index, (prompt, length) in enumerate([("prompt 0", 5), ("prompt 1", 8)]):
        alone = await server.post("/basic_generate", prompt=prompt, max_tokens=length, policy="continuous")
        mine = "".join(event["text"] for name, event in told(together) if name == "message" and event["index"] == index)
        assert mine == alone.json()["generated_text"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"prompts": []}, 422, "prompts"),
        ({}, 422, "prompts"),
        ({"prompts": [{"prompt": "x"}]}, 422, "prompts.0.max_tokens"),
        ({"prompts": [{"prompt": "x", "max_tokens": 0}]}, 400, "max_tokens"),
        ({"prompts": [{"prompt": "x", "max_tokens": 2}, {"prompt": "x", "max_tokens": -1}]}, 400, "max_tokens"),
        ({"prompts": [{"prompt": "x", "max_tokens": 2}, {"prompt": "x", "max_tokens": 10**6}]}, 400, "max_tokens"),
        ({"prompts": [{"prompt": "x", "max_tokens": 2, "n": 2}]}, 422, "prompts.0.n"),
        ({"prompts": [{"prompt": "x", "max_tokens": 2}], "policy": "nobody's"}, 400, "policy"),
    ],
)
async def test_what_it_refuses_it_names(server: Server, body: dict[str, Any], status: int, param: str) -> None:
    reply = await server.post("/try", **body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


async def test_who_leaves_frees_every_seat() -> None:
    async with serving() as server:
        server.runner.hold()
        sending = asyncio.create_task(server.post("/try", prompts=prompts(*[300] * 6), policy="static"))
        await server.run_steps(2)
        sending.cancel()
        server.runner.release()
        await asyncio.wait([sending])
        assert (await server.post("/basic_generate", prompt="next", max_tokens=1)).status_code == 200
        assert server.engine.observer.metrics.num_open(seated=True) == dict.fromkeys(server.engine.policies, 0)
