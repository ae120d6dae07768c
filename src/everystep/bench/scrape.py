"""What a server says of itself: its lanes, its runner, its seats so far, its vocabulary.

Owns the reading of ``/metrics`` and the questions about the model.  Ignorant of loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from everystep.bench.passes import SEAT_STATES, BenchFailed

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
    return Scrape(seats, tuple(policies), info["runner"], info["precision"], info["version"])


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
