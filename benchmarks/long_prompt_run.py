"""One turn of the long-prompt benchmark: neighbours decode over HTTP, a long prompt arrives, and every gap is noted.

Owns the streams and what is read off them and off the step log.  Ignorant of servers' settings and of tables.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from everystep.bench.scrape import drained, newest_step, steps_after
from everystep.bench.streamed import Stream

NEIGHBOUR_PROMPT = 16  # tokens
MOST_TOKENS = 2_000  # of a neighbour: more than anybody waits for
DEADLINE_S = 600.0
LANE = "continuous"
TOKEN = b'"choices":[{'  # stands in each token's chunk and in no other


@dataclass(frozen=True)
class Turn:
    """What one arrival of a long prompt did to its neighbours; seconds."""

    worst_itl_without_s: float
    median_itl_without_s: float
    worst_itl_with_s: float
    median_itl_with_s: float
    ratio: float  # worst with over worst without
    long_ttft_s: float
    num_steps_with: int  # in which the prompt was read
    longest_step_without_s: float
    longest_step_with_s: float  # of those in which a neighbour took part
    most_new_tokens: int  # of any step
    neighbours_left_out: int  # of those steps; 0 is the promise

    def as_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass
class Talk:
    """One streamed answer: its sequence's id, and when each of its tokens came."""

    stream: Stream = field(default_factory=Stream)
    request_id: str = ""
    tokens: asyncio.Condition = field(default_factory=asyncio.Condition)
    num_tokens: int = 0

    async def run(self, http: httpx.AsyncClient, body: dict[str, Any]) -> None:
        """Until the answer ends, or its reader is cancelled: the connection is closed then."""
        async with http.stream("POST", "/v1/completions", json=body) as reply:
            if reply.status_code != httpx.codes.OK:
                raise SystemExit(f"the server answers {reply.status_code}: {(await reply.aread())[:200]!r}")
            self.request_id = reply.headers["x-generation-id"]
            async for block in reply.aiter_raw():
                self.stream.add(time.monotonic(), block)
                async with self.tokens:
                    self.num_tokens += block.count(TOKEN)
                    self.tokens.notify_all()

    async def wait_for(self, num_tokens: int) -> None:
        async with self.tokens:
            await self.tokens.wait_for(lambda: self.num_tokens >= num_tokens)

    def arrivals_s(self) -> list[float]:
        """A time for each token: with ``logprobs`` each has a chunk of its own, also one that shows no text."""
        whole = Stream([*self.stream.blocks, (0.0, b"\n\n")])  # cut off in an event, perhaps: that one doesn't count
        return [at_s for at_s, event in whole.events() if at_s and TOKEN in event]


async def take_turn(http: httpx.AsyncClient, orders: Orders, rng: random.Random) -> Turn:
    """Neighbours alone, then the long prompt until its first token, then all leave."""
    since = await newest_step(http)
    talks = [Talk() for _ in range(orders.num_neighbours)]
    tasks = [asyncio.create_task(talk.run(http, orders.body(rng, NEIGHBOUR_PROMPT, MOST_TOKENS))) for talk in talks]
    long_talk, long_task = Talk(), None
    try:
        await _all(tasks, [talk.wait_for(1) for talk in talks])
        settled_s = time.monotonic()
        await _all(tasks, [talk.wait_for(talk.num_tokens + orders.num_before) for talk in talks])
        sent_s = time.monotonic()
        body = orders.body(rng, orders.num_prompt_tokens, orders.num_after)
        long_task = asyncio.create_task(long_talk.run(http, body))
        await _all([*tasks, long_task], [long_talk.wait_for(1)])
        first_s = long_talk.arrivals_s()[0]
        await _all([*tasks, long_task], [talk.wait_for(talk.num_tokens + 2) for talk in talks])
    finally:
        await _leave([*tasks, *([long_task] if long_task else [])])
    await drained(http)
    steps = await steps_after(http, since, LANE)
    gaps = [_gaps(talk.arrivals_s()) for talk in talks]
    without = [end - begin for each in gaps for begin, end in each if settled_s <= begin and end <= sent_s]
    with_it = [end - begin for each in gaps for begin, end in each if end > sent_s and begin < first_s]
    return _turn(without, with_it, first_s - sent_s, steps, [talk.request_id for talk in talks], long_talk.request_id)


@dataclass(frozen=True)
class Orders:
    """How much of everything."""

    model: str
    token_ids: range
    num_neighbours: int
    num_prompt_tokens: int
    num_before: int  # tokens of each neighbour before the long prompt comes
    num_after: int = 4  # tokens of the long prompt's answer

    def body(self, rng: random.Random, num_prompt_tokens: int, max_tokens: int) -> dict[str, Any]:
        prompt = [rng.choice(self.token_ids) for _ in range(num_prompt_tokens)]
        return {
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "logprobs": 0, "policy": LANE,
        }  # fmt: skip


def _turn(
    without: Sequence[float],
    with_it: Sequence[float],
    ttft_s: float,
    steps: Sequence[dict[str, Any]],
    neighbours: Sequence[str],
    long_id: str,
) -> Turn:
    reading = [step for step in steps if _reads(step, long_id)]
    first = reading[0]["step"]
    settled = [step for step in steps if step["step"] < first and _num_of(step, neighbours) == len(neighbours)]
    decoding = [step for step in settled if all(row["new_tokens"] == 1 for row in step["rows"])]
    return Turn(
        worst_itl_without_s=max(without),
        median_itl_without_s=statistics.median(without),
        worst_itl_with_s=max(with_it),
        median_itl_with_s=statistics.median(with_it),
        ratio=max(with_it) / max(without),
        long_ttft_s=ttft_s,
        num_steps_with=len(reading),
        longest_step_without_s=max(map(_length_s, decoding)),
        longest_step_with_s=max(_length_s(step) for step in reading if _num_of(step, neighbours)),
        most_new_tokens=max(sum(row["new_tokens"] for row in step["rows"]) for step in reading),
        neighbours_left_out=sum(len(neighbours) - _num_of(step, neighbours) for step in reading),
    )


def _reads(step: dict[str, Any], request_id: str) -> bool:
    """Whether the step computed a part of that prompt."""
    return any(row["request_id"] == request_id and row["phase"] == "prefill" for row in step["rows"])


def _num_of(step: dict[str, Any], request_ids: Sequence[str]) -> int:
    return sum(row["request_id"] in request_ids for row in step["rows"])


def _length_s(step: dict[str, Any]) -> float:
    return float(step["end_s"] - step["start_s"])


def _gaps(arrivals_s: Sequence[float]) -> list[tuple[float, float]]:
    return list(itertools.pairwise(arrivals_s))


async def _all(tasks: Sequence[asyncio.Task[None]], waits: Sequence[Any]) -> None:
    """All that is waited for; a stream that ends meanwhile has failed, and says why."""
    waiting = asyncio.ensure_future(asyncio.gather(*waits))
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            next(task for task in tasks if task.done()).result()
            raise SystemExit("a stream ended before it should")
        await waiting


async def _leave(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
