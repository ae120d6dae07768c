"""When to come again, on a running engine whose clock the test moves: a step of the model takes one second."""

import asyncio
import functools
import random

import pytest

from engine.test_client import GatedRunner
from everystep.engine.client import EngineClient
from everystep.engine.handle import WorkerThread
from everystep.errors import QueueFull

SEATS, MAX_QUEUE = 4, 16
DEADLINE_S = 30


class Watched(GatedRunner):
    """Says whose step has begun."""

    def __init__(self):
        super().__init__()
        self.num_begun = 0
        self.rows = frozenset()

    def run(self, plan):
        self.rows = frozenset(row.sequence.sequence_id for row in plan.rows)
        self.num_begun += 1
        return super().run(plan)


class OnClock(EngineClient):
    """The server's clock stands still unless the test moves it."""

    time_s = 0.0

    def now_s(self):
        return self.time_s


class Traffic:
    """Clients with one prompt each, who come again when they are told to, and again until they are let in."""

    def __init__(self, client, runner, make_request, policy, seed):
        self.client, self.runner, self.make_request = client, runner, make_request
        self.policy, self.random = policy, random.Random(seed)
        self.due = []  # (second, number, whether it is told to come then)
        self.reading = []
        self.num_told = self.num_let_in = 0

    def come(self, number, was_told):
        request = self.make_request(
            (number % 300 + 1,), policy=self.policy, request_id=f"c{number}", max_tokens=self.random.randint(2, 8)
        )
        self.num_told += was_told
        try:
            generation = self.client.submit(request)
        except QueueFull as error:
            self.due.append((self.client.time_s + error.retry_after_s, number, True))
        else:
            self.num_let_in += was_told
            self.reading.append(asyncio.create_task(self._read(generation)))

    async def _read(self, generation):
        async with generation:
            async for _ in generation:
                pass

    async def second(self):
        """Whoever is due comes; then a step, if there is anything to do."""
        now_due = sorted(entry for entry in self.due if entry[0] <= self.client.time_s)
        self.due = [entry for entry in self.due if entry[0] > self.client.time_s]
        for _, number, was_told in now_due:
            self.come(number, was_told)
        if self.client._requests._open:
            await self._seats_are_known()
            step = self.client._last_step
            self.runner.gate.release()
            await asyncio.wait_for(self.client.wait_for_step(step), DEADLINE_S)
        self.client.time_s += 1.0
        if self.client._requests._open:
            await self._seats_are_known()

    async def _seats_are_known(self):
        """The next step has begun, and its news have come."""
        async with asyncio.timeout(DEADLINE_S):
            while self.runner.num_begun <= self.client._last_step + 1 or not self._is_all_told():
                await asyncio.sleep(0)

    def _is_all_told(self):
        open_choices = self.client._requests._open
        return all(open_choices[name].is_started for name in self.runner.rows if name in open_choices)


@pytest.mark.parametrize("policy", ["static", "continuous"])
async def test_clients_that_come_again_when_they_are_told_to_mostly_get_in(policy, make_settings, make_request):
    runner = Watched()
    settings = make_settings(
        drain_timeout=0.0, max_queue=MAX_QUEUE, static_batch_size=SEATS, max_num_seqs=SEATS, prefix_cache=False
    )
    client = OnClock(settings, spawn=functools.partial(WorkerThread, make_runner=lambda: runner))
    await client.start()
    await client.wait_ready()
    try:
        while not client.status.is_ready:
            await asyncio.sleep(0)
        traffic = Traffic(client, runner, make_request, policy, seed=5)
        for wave in range(5):  # crowds of twice what seats and line hold, and an idle hour before each
            client.time_s += 3600.0
            traffic.due += [(client.time_s + i % 4, wave * 100 + i, False) for i in range(2 * (SEATS + MAX_QUEUE))]
            while traffic.due or client._requests._open:
                await traffic.second()
            if wave == 0:  # nothing was measured before
                traffic.num_told = traffic.num_let_in = 0
        assert traffic.num_told > 50
        assert traffic.num_let_in / traffic.num_told >= 0.8
        await asyncio.gather(*traffic.reading)
        counts = client.observer.metrics
        assert sum(counts.num_accepted.values()) == 5 * 2 * (SEATS + MAX_QUEUE) == counts.num_ended[policy, "length"]
    finally:
        runner.open()
        await client.close()
