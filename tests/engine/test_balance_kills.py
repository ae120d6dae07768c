"""Workers killed under load: the numbers balance at every scrape meanwhile, and what was lost is lost once.

Real worker processes behind the real API.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import httpx
import psutil
import pytest

from api.harness import tiny_settings
from engine.balance_calls import PATHS, Order, Sent
from engine.balance_sheet import LANES, BalanceSheet, Ledger
from everystep.api import create_app
from everystep.engine.client import EngineClient
from everystep.engine.client.patience import Patience

SEATS = {"static": 3, "per_token": 2, "continuous": 4}
SETTINGS = {
    "runner": "fake", "max_num_seqs": 4, "max_num_batched_tokens": 16, "static_batch_size": 3,
    "per_token_batch_size": 2, "max_queue": 40, "queue_timeout": 5.0, "max_model_len": 512, "drain_timeout": 0.0,
    "log_level": "debug",
}  # fmt: skip
FATAL = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV)
DEADLINE_S = 60.0


class Killed:
    """A server whose workers are killed, and all that was asked of it."""

    def __init__(self, engine: EngineClient, http: httpx.AsyncClient, app: object, random: Random) -> None:
        self.engine, self.http, self.app, self.random = engine, http, app, random
        self.sheet = BalanceSheet(http, SEATS)
        self.sent: list[Sent] = []
        self.pids: list[int] = []

    async def ready(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while (await self.http.get("/health/ready")).status_code != 200:
                await self.sheet.scrape()
                await asyncio.sleep(0.01)

    async def load(self, num_orders: int) -> None:
        """Orders of every kind, some of whom leave, with a scrape between any two."""
        for _ in range(num_orders):
            self.sent.append(Sent(self.app, self._order()))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            if self.random.random() < 0.2:
                self.random.choice(self.sent).leave()
            await self.sheet.scrape()

    async def kill_mid_step(self) -> None:
        """The worker ends while it works for those who are here; more come while it is gone."""
        pid = self.engine.worker_pid
        assert pid is not None
        self.pids.append(pid)
        os.kill(pid, self.random.choice(FATAL))
        await self.load(3)  # refused, or failed with the rest: there is nobody to serve them
        async with asyncio.timeout(DEADLINE_S):
            while self.engine.worker_pid == pid:
                await self.sheet.scrape()
                await asyncio.sleep(0.005)

    def _order(self) -> Order:
        return Order(
            kind=self.random.choice(sorted(PATHS)),
            policy=self.random.choice(LANES),
            num_prompts=self.random.randint(1, 3),
            n=self.random.randint(1, 2),
            max_tokens=self.random.choice((3, 60, 400)),
            timeout_s=self.random.choice((None, None, 0.05, 30.0)),
        )


@asynccontextmanager
async def killed(seed: int) -> AsyncIterator[Killed]:
    patience = Patience(first_back_off_s=0.01, max_back_off_s=0.01, steady_s=0.0)
    engine = EngineClient(tiny_settings(**SETTINGS), patience=patience)
    app = create_app(engine=engine)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tiny") as http,
    ):
        await asyncio.wait_for(engine.wait_ready(), DEADLINE_S)
        yield Killed(engine, http, app, Random(seed))


async def run_and_settle(run: Killed, num_kills: int) -> None:
    """Load, kill, load, kill …; then everything has ended once, as it says of itself."""
    await run.ready()
    before = await run.sheet.at_rest()
    for _ in range(num_kills):
        await run.load(12)
        await run.kill_mid_step()
        await run.ready()
    await run.load(6)
    await asyncio.wait_for(asyncio.gather(*(call.task for call in run.sent)), DEADLINE_S)
    after = await run.sheet.at_rest()
    ledger = Ledger()
    await ledger.read(run.http, [call.generation_id for call in run.sent if call.generation_id])
    for call in run.sent:
        assert call.status != 500 or b"ended while serving" in call.received, call.received
        if call.status == 429:
            ledger.rejected(call.order.policy, call.order.num_sequences)
    ledger.check(before, after)
    assert after.sum("everystep_worker_restarts_total") == num_kills
    assert after.sum("everystep_requests_total", outcome="failed") > 0, "the kills came too late to show anything"
    assert after.sum("everystep_requests_total", outcome="length") > 0
    assert not any(psutil.pid_exists(pid) for pid in run.pids)


async def test_the_numbers_balance_at_every_scrape_while_workers_are_killed_and_replaced() -> None:
    async with killed(seed=5) as run:
        await run_and_settle(run, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_numbers_balance_over_many_kills(seed: int) -> None:
    async with killed(seed) as run:
        await run_and_settle(run, 10)
