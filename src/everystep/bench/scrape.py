"""What a server says of itself: its lanes, its runner, its seats so far, its vocabulary.

Owns the reading of ``/metrics`` and the questions about the model.  Ignorant of loads.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from everystep.bench.passes import SEAT_STATES, BenchFailed

OPEN_REQUESTS = ("everystep_num_requests_running", "everystep_num_requests_waiting")
DRAINED_ASK_S = 0.1
DRAINED_DEADLINE_S = 120.0
STEPS_A_PAGE = 1000
MOST_STEPS = 2**53  # beyond any step there will be
MOST_TOKEN_IDS = 2**22  # above any vocabulary there is
SPECIAL_IDS = 1000  # low ids are control tokens and single bytes: prompts are drawn above, where the vocabulary allows


@dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of ``/metrics``."""

    seat_steps: dict[str, dict[str, int]]  # policy → state → seats times steps
    policies: tuple[str, ...]
    runner: str
    precision: str
    version: str
    num_open: int  # requests that run or wait, over all lanes
    num_generated: int  # tokens since the server started, over all lanes


def read_metrics(text: str) -> Scrape:
    """Raises :class:`BenchFailed` where this isn't an everystep server's."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    seats: dict[str, dict[str, int]] = {}
    for sample in samples:
        if sample.name == "everystep_seat_steps_total":
            seats.setdefault(sample.labels["policy"], {})[sample.labels["state"]] = int(sample.value)
    policies = [sample.labels["policy"] for sample in samples if sample.name == "everystep_requests_accepted_total"]
    info = next((sample.labels for sample in samples if sample.name == "everystep_info"), None)
    if info is None:
        raise BenchFailed("its /metrics has no everystep_info: not an everystep server")
    num_open = sum(int(sample.value) for sample in samples if sample.name in OPEN_REQUESTS)
    num_generated = sum(int(sample.value) for sample in samples if sample.name == "everystep_generation_tokens_total")
    return Scrape(seats, tuple(policies), info["runner"], info["precision"], info["version"], num_open, num_generated)


def seat_steps_between(before: Scrape, after: Scrape, policy: str) -> dict[str, int] | None:
    """Seat-steps of one policy between two scrapes; ``None`` where none of its seats moved (vLLM counts no seats)."""
    old, new = before.seat_steps.get(policy, {}), after.seat_steps.get(policy, {})
    steps = {state: new.get(state, 0) - old.get(state, 0) for state in SEAT_STATES}
    return steps if any(steps.values()) else None


async def scrape(http: httpx.AsyncClient) -> Scrape:
    reply = await http.get("/metrics")
    if reply.status_code != httpx.codes.OK:
        raise BenchFailed(f"{http.base_url}metrics answers {reply.status_code}: {reply.text:.200}")
    return read_metrics(reply.text)


async def drained(http: httpx.AsyncClient) -> Scrape:
    """The first reading with no request open: an answer that failed may be computed on for a while.

    Raises :class:`BenchFailed` at a deadline: what comes next would be measured beside this.
    """
    deadline_s = time.monotonic() + DRAINED_DEADLINE_S
    while (seen := await scrape(http)).num_open:
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{http.base_url} still has {seen.num_open} requests, {DRAINED_DEADLINE_S:g} s after all")
        await asyncio.sleep(DRAINED_ASK_S)
    return seen


async def newest_step(http: httpx.AsyncClient) -> int:
    """Number of the last step that the server has taken."""
    return int((await _steps_page(http, MOST_STEPS, 1))["next"])


async def steps_after(http: httpx.AsyncClient, since: int, policy: str) -> tuple[dict[str, Any], ...]:
    """One lane's steps after ``since``, as far as the server remembers them."""
    found: list[dict[str, Any]] = []
    while (page := await _steps_page(http, since, STEPS_A_PAGE))["steps"]:
        found += [step for step in page["steps"] if step["policy"] == policy]
        since = page["next"]
    return tuple(found)


async def _steps_page(http: httpx.AsyncClient, since: int, limit: int) -> dict[str, Any]:
    reply = await http.get("/steps", params={"since": since, "limit": limit})
    if reply.status_code != httpx.codes.OK:
        raise BenchFailed(f"{http.base_url}steps answers {reply.status_code}: {reply.text:.200}")
    page: dict[str, Any] = reply.json()
    return page


async def served_model(http: httpx.AsyncClient) -> str:
    """The name that requests must give."""
    reply = await http.get("/v1/models")
    if reply.status_code != httpx.codes.OK:
        raise BenchFailed(f"{http.base_url}v1/models answers {reply.status_code}: {reply.text:.200}")
    return str(reply.json()["data"][0]["id"])


async def prompt_token_ids(http: httpx.AsyncClient) -> range:
    """Ids that any prompt may hold.  The vocabulary's end is found by asking: ids beyond it are refused."""
    low, high = 0, MOST_TOKEN_IDS  # low is in it, high is not
    while high - low > 1:
        middle = (low + high) // 2
        reply = await http.post("/detokenize", json={"tokens": [middle]})
        low, high = (middle, high) if reply.status_code == httpx.codes.OK else (low, middle)
    if high == 1:
        raise BenchFailed(f"{http.base_url}detokenize takes no token id: is this an everystep server that is ready?")
    return range(min(SPECIAL_IDS, high // 2), high)
