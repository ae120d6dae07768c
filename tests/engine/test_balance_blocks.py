"""Blocks that don't come back are seen: by the core, by the gauge, by whoever reads the log."""

import asyncio
import logging

import pytest

from everystep.engine.client import EngineClient
from everystep.engine.core import EngineCore
from everystep.messages import Abort, Submit
from everystep.observe.schedule import Recorder
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy
from everystep.types import FinishReason
from observe.scraping import Scrape

USAGE = "everystep_kv_cache_usage_ratio"
DEADLINE_S = 60.0


class LeaksOnAbort(ContinuousPolicy):
    """Forgets a block of whoever is taken back."""

    def abort(self, sequence_id, reason=FinishReason.ABORTED):
        if (sequence := self._sequences.get(sequence_id)) is not None:
            del sequence.block_ids[-1:]
        return super().abort(sequence_id, reason)


class KeepsAClaim(ContinuousPolicy):
    """Goes on claiming blocks for somebody who isn't there."""

    def has_work(self):
        self.pool.claim("somebody who left", 1)
        return super().has_work()


class Kept(Recorder):
    where = "somewhere.jsonl"


def make_core(policy=LeaksOnAbort, **options):
    runner, pool = FakeRunner(block_size=4), BlockPool(8, 4)
    runner.allocate(8)
    return EngineCore(
        runner=runner, lanes={"continuous": policy(2, 8, pool=pool)}, pool=pool, now_s=lambda: 0.0, **options
    )


def submit_and_abort(core):
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    core.submit(Submit("a", "a", "continuous", (1, 2, 3), params, 0, (), 0, 0.0))
    core.step()
    core.abort(Abort("a", FinishReason.ABORTED))


def test_a_leak_is_logged_once_when_nobody_is_left_and_names_the_recording(caplog):
    core = make_core(recorder=Kept())
    submit_and_abort(core)
    for _ in range(3):
        assert core.step() is None
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "1 of 8 blocks are in use" in said
    assert "somewhere.jsonl" in said


def test_without_a_leak_nothing_is_logged(caplog):
    core = make_core(ContinuousPolicy)
    submit_and_abort(core)
    assert core.step() is None
    assert caplog.records == []


def test_under_debug_a_leak_ends_the_core():
    core = make_core(check_when_idle=True)
    submit_and_abort(core)
    with pytest.raises(AssertionError, match="reference counts differ"):
        core.step()


def test_a_claim_that_nobody_stands_behind_is_told_as_well(caplog):
    core = make_core(KeepsAClaim)
    core.step()
    assert any("claimed" in record.getMessage() for record in caplog.records)


class Gated(FakeRunner):
    """Says when a pass has begun; the pass ends when the test lets it."""

    def __init__(self, loop):
        super().__init__(vocab_size=384)
        self.loop, self.begun, self.may_end = loop, asyncio.Event(), asyncio.Semaphore(0)

    def run(self, plan):
        async def wait():
            self.begun.set()
            await self.may_end.acquire()

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result()
        return super().run(plan)


async def until_usage_is(client, expected):
    """By the worker's own news: each look is a turn of the loop that hears it."""
    async with asyncio.timeout(DEADLINE_S):
        while Scrape(client.observer).value(USAGE) != expected:
            await asyncio.sleep(0.001)


async def test_the_gauge_is_what_the_pool_holds_after_a_step_and_after_an_abort_that_no_step_follows(
    make_settings, make_request
):
    runner = Gated(asyncio.get_running_loop())
    client = EngineClient.in_process(make_settings(drain_timeout=0.0), lambda: runner)
    await client.start()
    num_blocks = (await client.wait_ready()).num_blocks
    while not client.status.is_ready:
        await asyncio.sleep(0)
    async with client.submit(make_request((1, 2, 3), max_tokens=300)):
        await runner.begun.wait()
        runner.begun.clear()
        runner.may_end.release()
        await client.wait_for_step(-1)
        assert Scrape(client.observer).value(USAGE) == 1 / num_blocks  # 4 known tokens of 32
        await runner.begun.wait()
    runner.may_end.release()  # it left within the second pass
    await until_usage_is(client, 0)
    async with client.submit(make_request((1, 2, 3), max_tokens=1, request_id="next")) as generation:
        runner.may_end.release()
        assert [delta.finish_reason async for delta in generation] == [FinishReason.LENGTH]
    assert Scrape(client.observer).value(USAGE) == 0  # told by the very step that ended it
    await client.close()
