"""Sends bad input and judges what comes back: a refusal of our shape, a right answer, never a 500, never silence.

Owns the judgement.  Ignorant of what is sent: the catalogue is another file's.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak_bad_bodies import BadCase, bad_cases, odd_case
from soak_ledger import End, Entry, Ledger
from soak_requests import Facts
from soak_server import Server
from soak_wire import WireReply, connected

ODD_SHARE = 0.6
BUSY = {429: End.QUEUE_FULL, 503: End.UNAVAILABLE}  # the answers that any request may get
LATE = {"queue_timeout": End.QUEUE_TIMEOUT, "request_timeout": End.REQUEST_TIMEOUT, "engine_failed": End.WORKER_DIED}


@dataclass
class BadInput:
    """One sender.  Every case of the catalogue has its turn; odd fields are drawn between them."""

    server: Server
    ledger: Ledger
    facts: Facts
    rng: random.Random
    deadline_s: float
    max_body_mib: float
    num_tried: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    _turns: Iterator[BadCase] | None = None

    async def send_one(self) -> None:
        """One case, to its end."""
        case = self._next()
        self.num_tried[case.kind] += 1
        self.names.add(case.name)
        entry = self.ledger.send(f"bad: {case.kind}", case.policy, case.num_sequences, time.monotonic())
        try:
            async with asyncio.timeout(self.deadline_s):
                reply = await self._exchange(case)
        except TimeoutError:
            self._end(entry, End.HUNG, f"{case.name}: no end in {self.deadline_s:g} s")
            return
        self._judge(case, entry, reply)

    def _next(self) -> BadCase:
        if self.rng.random() < ODD_SHARE:
            return odd_case(self.facts, self.server.headers, self.rng)
        case = next(self._turns, None) if self._turns is not None else None
        if case is None:
            cases = bad_cases(self.facts, self.server.headers, self.max_body_mib)
            self.rng.shuffle(cases)
            self._turns = iter(cases)
            case = next(self._turns)
        return case

    async def _exchange(self, case: BadCase) -> WireReply | None:
        """The reply; ``None`` where the server closed without one."""
        async with connected(self.server.port) as wire:
            sending = asyncio.create_task(wire.send(case.data))  # it may answer before all is sent
            try:
                return await wire.read_reply()
            except (EOFError, ConnectionError):
                return None
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    def _judge(self, case: BadCase, entry: Entry, reply: WireReply | None) -> None:
        if reply is None:
            self._end(entry, End.DROPPED if case.may_close else End.LOST, f"{case.name}: closed without a word")
            return
        words = f"{case.name}: {reply.status} {reply.body[:200]!r}"
        kind = self._error_kind(reply)
        if reply.status in case.statuses:
            self._end(entry, End.REFUSED if reply.status >= 400 else End.ANSWERED, words)
            if reply.status >= 400 and kind is None:
                self.ledger.violate("4xx without our error's shape", words)
        elif reply.status in BUSY or kind in LATE:
            self._end(entry, LATE.get(kind or "", BUSY.get(reply.status, End.LOST)), words)
        else:
            self._end(entry, End.LOST, words)

    def _error_kind(self, reply: WireReply) -> str | None:
        try:
            return str(json.loads(reply.body)["error"]["type"])
        except (ValueError, KeyError, TypeError):
            return None

    def _end(self, entry: Entry, how: End, words: str) -> None:
        is_sure = how in (End.REFUSED, End.UNAVAILABLE)
        self.ledger.end(entry, how, time.monotonic(), words, is_sure=is_sure)
