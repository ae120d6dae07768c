"""The balance sheet of a server: what ``/metrics`` must say of itself at every scrape, and of all requests in the end.

Owns the sums.  Ignorant of what was done to the server.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels]
LANES = ("static", "per_token", "continuous")
DEADLINE_S = 60.0


class Scrape:
    """One scrape: all samples, by name and labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self.values: dict[Sample, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.kinds[sample.name] = family.type
                self.values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    def sum(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(value for (known, own), value in self.values.items() if known == name and wanted <= set(own))

    def open(self, **labels: str) -> float:
        running = self.sum("everystep_num_requests_running", **labels)
        return running + self.sum("everystep_num_requests_waiting", **labels)

    def ended(self, **labels: str) -> float:
        every = self.sum("everystep_requests_total", **labels)
        return every - self.sum("everystep_requests_total", outcome="rejected", **labels)

    @property
    def is_at_rest(self) -> bool:
        return self.open() == 0 and self.sum("everystep_kv_cache_usage_ratio") == 0


class BalanceSheet:
    """Scrapes one server, and checks each scrape by itself and against the one before."""

    def __init__(self, http: httpx.AsyncClient, seats: Mapping[str, int]) -> None:
        self.num_scrapes = 0
        self._http = http
        self._seats = seats
        self._last: Scrape | None = None

    async def scrape(self) -> Scrape:
        """Raises ``AssertionError`` where the numbers don't agree."""
        reply = await self._http.get("/metrics")
        scrape = Scrape(reply.text)
        self.num_scrapes += 1
        self._check_signs(scrape)
        for lane in LANES:
            accepted = scrape.sum("everystep_requests_accepted_total", policy=lane)
            assert accepted == scrape.ended(policy=lane) + scrape.open(policy=lane), f"{lane} doesn't balance"
        self._check_histograms(scrape)
        self._last = scrape
        return scrape

    async def at_rest(self) -> Scrape:
        """Wait until nobody is here and no block is in use: the worker confirms the last who left."""
        async with asyncio.timeout(DEADLINE_S):
            while not (scrape := await self.scrape()).is_at_rest:
                await asyncio.sleep(0.005)
        return scrape

    def _check_signs(self, scrape: Scrape) -> None:
        for (name, labels), value in scrape.values.items():
            assert value >= 0, f"{name}{dict(labels)} is {value}"
            if self._last is not None and scrape.kinds[name] != "gauge":
                before = self._last.values.get((name, labels), 0.0)
                assert value >= before, f"{name}{dict(labels)} fell from {before} to {value}"
        assert scrape.sum("everystep_kv_cache_usage_ratio") <= 1

    def _check_histograms(self, scrape: Scrape) -> None:
        accepted = scrape.sum("everystep_requests_accepted_total")
        first_tokens = scrape.sum("everystep_time_to_first_token_seconds_count")
        starts = scrape.sum("everystep_request_queue_seconds_count")
        gaps = scrape.sum("everystep_inter_token_latency_seconds_count")
        assert first_tokens <= starts <= accepted
        assert starts >= scrape.sum("everystep_num_requests_running")
        assert scrape.sum("everystep_e2e_request_seconds_count") == scrape.ended()
        assert first_tokens + gaps == scrape.sum("everystep_generation_tokens_total")
        steps = scrape.sum("everystep_step_seconds_count")
        assert steps == scrape.sum("everystep_step_tokens_count")
        seat_steps = {lane: scrape.sum("everystep_seat_steps_total", policy=lane) for lane in LANES}
        assert steps == sum(seat_steps[lane] / self._seats[lane] for lane in LANES)


class Ledger:
    """What ``/requests/{id}`` says of all that were sent, as sums that the counters must agree with."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()  # policy, outcome
        self.sums: Counter[str] = Counter()

    async def read(self, http: httpx.AsyncClient, generation_ids: Iterable[str]) -> None:
        for generation_id in generation_ids:
            reply = await http.get(f"/requests/{generation_id}")
            if reply.status_code == 404:  # refused at the door
                continue
            self._add(reply.json())

    def rejected(self, policy: str, num_sequences: int) -> None:
        self.outcomes[policy, "rejected"] += num_sequences

    def check(self, before: Scrape, after: Scrape) -> None:
        """The counters' growth between the scrapes is what the requests say of themselves."""
        for lane in LANES:
            for outcome in ("stop", "length", "aborted", "failed", "timeout", "rejected"):
                labels = {"policy": lane, "outcome": outcome}
                grown = after.sum("everystep_requests_total", **labels) - before.sum(
                    "everystep_requests_total", **labels
                )
                assert grown == self.outcomes[lane, outcome], f"{labels}: counted {grown}, told {self.outcomes}"
        for name, value in self.sums.items():
            grown = after.sum(name) - before.sum(name)
            assert grown == value, f"{name}: counted {grown}, told {value}"

    def _add(self, life: dict[str, Any]) -> None:
        assert life["is_finished"], life
        for sequence in life["sequences"]:
            assert sequence["state"] == "finished"
            self.outcomes[life["policy"], sequence["finish"]] += 1
            self.sums["everystep_requests_accepted_total"] += 1
            self.sums["everystep_e2e_request_seconds_count"] += 1
            self.sums["everystep_request_queue_seconds_count"] += sequence["first_step"] is not None
            self.sums["everystep_time_to_first_token_seconds_count"] += sequence["first_token_s"] is not None
            self.sums["everystep_generation_tokens_total"] += sequence["output_tokens"]
            if sequence["first_step"] is not None:
                self.sums["everystep_prompt_tokens_total"] += sequence["prompt_tokens"]
