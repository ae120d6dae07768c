"""Lone requests to an idle server: what lies between a client and a step, and how quickly a prompt is read.

Owns the client's clock set by the server's, and the two overheads.  Ignorant of what a step costs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx

from everystep.bench.apis import TO_THE_LAST_TOKEN, Completions
from everystep.bench.exchange import exchange
from everystep.bench.passes import BenchFailed
from everystep.bench.scrape import newest_step, steps_after

NUM_PROBES = 9


@dataclass(frozen=True, slots=True)
class Lone:
    """One request that had the server for itself.  Times are the server's, in seconds since its start."""

    sent_s: float
    arrivals_s: tuple[float, ...]  # of its pieces, at the client
    steps: tuple[dict[str, Any], ...]

    @property
    def submit_s(self) -> float:
        """From the client's send to the first step's start."""
        return float(self.steps[0]["start_s"]) - self.sent_s

    @property
    def deliver_s(self) -> float:
        """From when the next step could start until the client has the first token."""
        gaps = [later["start_s"] - step["end_s"] for step, later in pairwise(self.steps)]
        return float(self.arrivals_s[0] - self.steps[0]["end_s"] - (statistics.median(gaps) if gaps else 0.0))

    @property
    def tokens_per_s(self) -> float:
        """New tokens over seconds of the first step: the speed at which its prompt was read."""
        first = self.steps[0]
        return float(first["rows"][0]["new_tokens"] / (first["end_s"] - first["start_s"]))


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds outside of steps; see :class:`everystep.analysis.simulator.Machine`."""

    submit_s: float
    deliver_s: float


def overheads(lone: Sequence[Lone]) -> Overheads:
    """Medians.  Their sum is a difference of the client's own times; the parts can be off by half a round trip."""
    submit_s = statistics.median(one.submit_s for one in lone)
    deliver_s = statistics.median(one.deliver_s for one in lone)
    return Overheads(max(0.0, submit_s), max(0.0, deliver_s))


async def clock_offset_s(http: httpx.AsyncClient) -> float:
    """What to add to ``time.monotonic()`` for the clock of the step log: by the quickest of a few questions."""
    probes = []
    for _ in range(NUM_PROBES):
        asked_s = time.monotonic()
        now_s = float((await engine_facts(http))["now_s"])
        answered_s = time.monotonic()
        probes.append((answered_s - asked_s, now_s - (asked_s + answered_s) / 2))
    return min(probes)[1]


async def engine_facts(http: httpx.AsyncClient) -> dict[str, Any]:
    """What the server says of its engine.  Raises :class:`BenchFailed` where it says nothing."""
    reply = await http.get("/engine")
    if reply.status_code != httpx.codes.OK:
        raise BenchFailed(f"{http.base_url}engine answers {reply.status_code}: {reply.text:.200}")
    return dict(reply.json())


async def ask_alone(
    http: httpx.AsyncClient, model: str, policy: str, prompt: Sequence[int], num_tokens: int, offset_s: float
) -> Lone:
    """Send one request and wait for it.  Raises :class:`BenchFailed` where it had company, or failed."""
    api = Completions(model, extras={**TO_THE_LAST_TOKEN, "policy": policy})
    body, step = api.body(prompt, num_tokens), await newest_step(http)
    sent_s = time.monotonic()
    reply = await exchange(http, api.path, body, time.monotonic)
    if reply.failure is not None:
        raise BenchFailed(f"{http.base_url}: a lone request failed: {reply.failure}")
    (arrivals_s,) = api.read(reply.stream, num_tokens).arrivals_s
    steps = await steps_after(http, step, policy)
    if any(len(one["rows"]) != 1 for one in steps) or not steps:
        raise BenchFailed(f"{http.base_url} has other clients: a calibration wants the server for itself")
    return Lone(sent_s + offset_s, tuple(each + offset_s for each in arrivals_s), steps)
