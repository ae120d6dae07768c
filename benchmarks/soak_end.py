"""How a soak ends: everything at rest, the books compared, and a server that leaves as it should while work is open.

Owns these last questions.  Ignorant of what went before.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
from soak_asking import Asking
from soak_ledger import Ledger
from soak_requests import LANES, Ask, Draw, Facts
from soak_server import Server
from soak_watch import Numbers, labelled, num_open, read_numbers

ASK_S = 0.1
LOUD = re.compile(r" (ERROR|CRITICAL) |Traceback|Exception|never retrieved|never awaited")
FORESEEN = re.compile(r"supervisor the worker ")  # ended, or made no step: as was done to it
LAST_STREAMS, LAST_TOKENS = 6, 40
LONE_BLOCKS = 1  # that a prompt of one token and its answer of two need


@dataclass
class Ending:
    server: Server
    ledger: Ledger
    asking: Asking
    facts: Facts
    draw: Draw
    patience_s: float
    before: Numbers  # as they were when the ledger was opened

    async def rest(self, num_ends: int) -> Numbers:
        """Wait for rest, then compare.  ``num_ends``: workers that were ended."""
        numbers = await self._idle()
        for entry in list(self.ledger.open.values()):
            self.ledger.violate("requests without an end", f"{entry.kind} {entry.number}")
        for lane in LANES:
            accepted = self._since(numbers, "everystep_requests_accepted_total", policy=lane)
            self._compare(f"{lane}: accepted", self.ledger.accepted(lane), accepted)
            rejected = self._since(numbers, "everystep_requests_total", policy=lane, outcome="rejected")
            self._compare(f"{lane}: rejected", self.ledger.rejected(lane), rejected)
        if (restarts := numbers["everystep_worker_restarts_total"]) != num_ends:
            self.ledger.violate("restarts that nobody caused", f"{restarts:g} restarts, {num_ends} workers ended")
        await self._no_leaked_blocks()
        return numbers

    def _since(self, numbers: Numbers, name: str, **labels: str) -> float:
        return labelled(numbers, name, **labels) - labelled(self.before, name, **labels)

    def _compare(self, what: str, ours: Any, theirs: float) -> None:
        if not ours.hold(int(theirs)):
            self.ledger.violate("books that differ", f"{what}: the server counts {theirs:g}, its clients {ours}")

    async def _idle(self) -> Numbers:
        began_s = time.monotonic()
        while True:
            numbers = read_numbers((await self.asking.http.get("/metrics")).text)
            if not num_open(numbers) and not numbers["everystep_kv_cache_usage_ratio"]:
                return numbers
            if time.monotonic() - began_s > self.patience_s:
                self.ledger.violate("gauges that don't return to zero", f"{num_open(numbers):g} open, "
                    f"cache {numbers['everystep_kv_cache_usage_ratio']:g}")  # fmt: skip
                return numbers
            await asyncio.sleep(ASK_S)

    async def _no_leaked_blocks(self) -> None:
        """A lone request's steps show every block that somebody still holds."""
        newest = (await self.asking.http.get("/steps", params={"since": 2**53, "limit": 1})).json()["next"]
        body = {"model": self.facts.model, "prompt": [self.facts.prompt_ids[0]], "max_tokens": 2, "ignore_eos": True}
        await self.asking.ask(Ask("lone", "/v1/completions", body | {"policy": "continuous"}, "continuous", 1))
        steps = (await self.asking.http.get("/steps", params={"since": newest, "limit": 10})).json()["steps"]
        used = max((step["blocks_used"] for step in steps), default=None)
        if used != LONE_BLOCKS:
            self.ledger.violate("blocks that leaked", f"a lone request of {LONE_BLOCKS} block sees {used} in use")

    async def leave(self) -> int | None:
        """SIGTERM while streams are open: each has its end, new ones are refused, status 0, nobody is left."""
        streams = [asyncio.create_task(self.asking.ask(self.draw.stream(LAST_TOKENS))) for _ in range(LAST_STREAMS)]
        while not self.ledger.num_streams and not all(task.done() for task in streams):
            await asyncio.sleep(0.001)
        self.server.terminate()
        await asyncio.gather(*streams)
        await self._refused()
        status = await self.server.wait_end()
        if status != 0:
            self.ledger.violate("the exit status", f"{status} instead of 0")
        if orphans := await self.server.orphans():
            self.ledger.violate("orphans", f"{orphans} outlived the server")
        return status

    def read_log(self) -> None:
        """The server's log tells of workers' ends, and of no fault of its own."""
        for line in self.server.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if LOUD.search(line) and not FORESEEN.search(line):
                self.ledger.violate("errors in the server's log", line)

    async def _refused(self) -> None:
        try:
            async with httpx.AsyncClient(base_url=self.server.url, timeout=self.patience_s, trust_env=False) as http:
                reply = await http.post("/generate", json={"prompts": ["x"]}, headers=self.server.headers)
        except httpx.TransportError:
            return  # it doesn't listen any more
        if reply.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            self.ledger.violate("the end", f"a new request got {reply.status_code} instead of 503")
