"""The rounds of the static lane as clients see them in ``/steps``: batches that respect no request's borders."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import Any

from api.harness import Server


async def steps_after(server: Server, step: int) -> list[dict[str, Any]]:
    return list((await server.http.get(f"/steps?since={step}&limit=1000")).json()["steps"])


def rounds(steps: list[dict[str, Any]]) -> list[int]:
    """Rows of each round: steps in a row that have the same members."""
    members = [frozenset(row["sequence_id"] for row in step["rows"]) for step in steps]
    return [len(group) for group, _ in groupby(members)]


async def test_six_prompts_on_an_idle_server_run_as_rounds_of_four_and_two_every_time(server: Server) -> None:
    for _ in range(15):
        last = server.engine.observer.step_log.last_step
        await server.post("/generate", prompts=list("abcdef"), max_tokens=2, ignore_eos=True)
        assert rounds(await steps_after(server, last)) == [4, 2]


async def test_requests_that_wait_together_are_taken_across_their_borders_and_each_reply_is_whole(
    server: Server,
) -> None:
    texts = {name: f" the answer to {name}" for name in "stuvw"}
    for name, text in texts.items():
        server.runner.say(name, text)
    server.runner.hold()
    running = asyncio.create_task(server.post("/generate", prompts=["a"], max_tokens=5, ignore_eos=True))
    await server.run_steps(1)
    waiting = [asyncio.create_task(server.post("/generate", prompts=list(names))) for names in ("st", "uvw")]
    while server.engine.observer.metrics.num_accepted["static"] < 6:
        await asyncio.sleep(0)
    await server.run_steps(2)  # the plan of the first of them was made before they came
    [*_, step] = await steps_after(server, -1)
    assert [entry["why"] for entry in step["waiting"]] == ["round_running"] * 5  # though three seats are free
    server.runner.release()
    replies = [await task for task in (running, *waiting)]
    assert replies[1].json()["generated_texts"] == [texts["s"], texts["t"]]
    assert replies[2].json()["generated_texts"] == [texts["u"], texts["v"], texts["w"]]
    assert rounds(await steps_after(server, -1)) == [1, 4, 1]


async def test_short_members_hold_their_seats_until_the_longest_ends_and_in_the_continuous_lane_none_does(
    server: Server,
) -> None:
    lengths = {"a": 5, "b": 5, "c": 5, "d": 60}
    for lane, num_held in {"static": 3 * 55, "continuous": 0}.items():
        server.runner.hold()
        last = server.engine.observer.step_log.last_step
        bodies = [{"prompt": p, "max_tokens": n, "ignore_eos": True, "policy": lane} for p, n in lengths.items()]
        if lane == "static":  # a round takes who is there: let a first one run while the four arrive
            first = asyncio.create_task(server.post("/generate", prompts=["x"], max_tokens=2, ignore_eos=True))
            await server.run_steps(1)
            last += 2
        tasks = [asyncio.create_task(server.post("/basic_generate", **body)) for body in bodies]
        while server.engine.observer.metrics.num_accepted[lane] < 4 + (lane == "static"):
            await asyncio.sleep(0)
        server.runner.release()
        assert {task.status_code for task in await asyncio.gather(*tasks)} == {200}
        if lane == "static":
            await first
        phases = [row["phase"] for step in await steps_after(server, last) for row in step["rows"]]
        assert phases.count("held") == num_held
