"""The supervisor and the client with workers that a test acts: hangs, crash loops, slow deaths, and their bounds."""

import asyncio
import functools

import pytest

from engine.acted_worker import ActedWorker
from everystep.engine.client import EngineClient
from everystep.engine.client.patience import Patience
from everystep.engine.client.supervisor import Phase
from everystep.errors import EngineFailed, EngineUnavailable
from everystep.messages import EventsOnly, Shutdown, SubmitAll, WorkerFailed
from everystep.types import FinishReason, TokenEvent

DEADLINE_S = 30.0
HASTY = Patience(first_back_off_s=0.01, max_back_off_s=0.04, max_failures=3, leave_s=0.2, reap_s=0.1,
                 watch_interval_s=0.01)  # fmt: skip


class Stage:
    """A client whose workers are acted; ``workers`` are those that were started, in order."""

    def __init__(self, settings, patience=HASTY):
        self.workers, self.news, self.acts = [], asyncio.Queue(), {}
        self._loop = asyncio.get_running_loop()
        self.client = EngineClient(settings, spawn=self._spawn, patience=patience)

    def _spawn(self, args):
        make = self.acts.get(len(self.workers), ActedWorker)
        worker = make(args)
        self.workers.append(worker)
        self._loop.call_soon_threadsafe(self.news.put_nowait, worker)
        return worker

    async def next_worker(self):
        return await asyncio.wait_for(self.news.get(), DEADLINE_S)

    async def until(self, is_so):
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await asyncio.sleep(0.005)

    async def until_ready(self):
        await self.until(lambda: self.client.status.is_ready)

    @property
    def supervisor(self):
        return self.client._backends.first


@pytest.fixture
async def start(make_settings):
    stages = []

    async def start(patience=HASTY, acts=None, **settings):
        stage = Stage(make_settings(drain_timeout=0.0, **settings), patience)
        stage.acts.update(acts or {})
        stages.append(stage)
        await stage.client.start()
        return stage

    yield start
    for stage in stages:
        for worker in stage.workers:
            worker.may_end.set()
            worker.end()
        await stage.client.close()


async def ends_of(generation):
    return [delta async for delta in generation if delta.finish_reason is not None]


async def submitted(worker, num):
    """The worker has been sent so many sequences."""
    names = []
    while len(names) < num:
        for message in await asyncio.to_thread(worker.stream.receive, DEADLINE_S):
            assert isinstance(message, SubmitAll)
            names += [submit.sequence_id for submit in message.submits]
    return names


async def test_a_worker_that_turns_but_makes_no_step_is_said_then_replaced_and_its_requests_fail(start, make_request):
    stage = await start(stall_timeout=2.0)
    worker = await stage.next_worker()
    await stage.until_ready()
    request = stage.client.submit(make_request((1, 2), (3, 4), n=2))
    beating = asyncio.create_task(keep_beating(stage, worker))
    await stage.until(lambda: not stage.client.status.is_ready)
    assert stage.client.status.is_live
    assert "the worker is stuck: no step for" in stage.client.status.reason
    with pytest.raises(EngineUnavailable, match="stuck"):
        stage.client.submit(make_request(request_id="late"))
    ends = await asyncio.wait_for(ends_of(request), DEADLINE_S)
    assert [type(end.failure) for end in ends] == [EngineFailed] * 4
    assert "though requests are open" in ends[0].error
    assert worker.is_killed
    beating.cancel()
    await stage.next_worker()
    await stage.until_ready()


async def keep_beating(stage, worker):
    while True:
        worker.heartbeat[0] = stage.client.now_s()
        await asyncio.sleep(0.005)


async def test_a_worker_that_hangs_at_its_first_start_ends_with_words_and_isnt_tried_again(start):
    patience = Patience(start_s=0.1, leave_s=0.2, reap_s=0.1, watch_interval_s=0.01)
    stage = await start(patience, acts={0: functools.partial(ActedWorker, is_ready=False)})
    with pytest.raises(EngineFailed, match="no word since its start"):
        await asyncio.wait_for(stage.client.wait_ready(), DEADLINE_S)
    assert len(stage.workers) == 1
    assert stage.workers[0].is_killed


async def test_a_replacement_that_hangs_at_its_start_is_replaced_in_turn(start):
    patience = Patience(first_back_off_s=0.01, start_s=0.2, leave_s=0.2, reap_s=0.1, watch_interval_s=0.01)
    stage = await start(patience, acts={1: functools.partial(ActedWorker, is_ready=False)})
    (await stage.next_worker()).end()
    hanging = await stage.next_worker()
    await stage.next_worker()
    await stage.until_ready()
    assert hanging.is_killed


async def test_a_worker_that_doesnt_heed_the_order_to_leave_is_killed(start):
    stage = await start()
    worker = await stage.next_worker()
    await stage.until_ready()
    hearing = asyncio.create_task(asyncio.to_thread(worker.stream.receive, DEADLINE_S))
    closing = asyncio.create_task(stage.client.close())
    (order,) = await asyncio.wait_for(hearing, DEADLINE_S)
    assert isinstance(order, Shutdown)
    await asyncio.wait_for(closing, DEADLINE_S)
    assert worker.is_killed


async def test_requests_fail_at_once_though_the_dead_process_takes_its_time_to_go(start, make_request):
    """Its memory may be large.  Nobody is taken in meanwhile, and no other is started beside it."""
    patience = Patience(first_back_off_s=0.01, leave_s=DEADLINE_S, reap_s=0.05)
    stage = await start(patience, acts={0: functools.partial(ActedWorker, dies_slowly=True)})
    worker = await stage.next_worker()
    await stage.until_ready()
    request = stage.client.submit(make_request())
    worker.end()
    (end,) = await asyncio.wait_for(ends_of(request), DEADLINE_S)
    assert end.finish_reason is FinishReason.FAILED
    assert "the worker ended while serving this request: it ended without a word" in end.error
    with pytest.raises(EngineUnavailable, match="restarting"):
        stage.client.submit(make_request(request_id="late"))
    assert len(stage.workers) == 1
    worker.may_end.set()
    await stage.next_worker()
    await stage.until_ready()


async def test_a_crash_loop_backs_off_and_ends_and_every_request_has_its_end_first(start, make_request, caplog):
    stage = await start()
    lost = asyncio.create_task(stage.client.wait_given_up())
    ends = []
    for i in range(HASTY.max_failures):
        worker = await stage.next_worker()
        await stage.until_ready()
        request = stage.client.submit(make_request(request_id=f"q{i}"))
        worker.end(WorkerFailed("no kernel image"))
        ends += await asyncio.wait_for(ends_of(request), DEADLINE_S)
    error = await asyncio.wait_for(lost, DEADLINE_S)
    assert len(ends) == HASTY.max_failures
    assert all("no kernel image" in end.error for end in ends)
    assert "ended 3 times in a row without having served; the last time: no kernel image" in error.message
    assert (stage.supervisor.phase, stage.client.status.is_live) == (Phase.FAILED, False)
    assert stage.news.empty()
    said = [record.getMessage() for record in caplog.records if "in a row" in record.getMessage()]
    assert [words.partition(":")[0] for words in said] == [f"the worker ended ({i} of 3 in a row)" for i in range(1, 4)]
    assert [words.rpartition("; ")[2] for words in said] == [
        "the next starts in 0.01 s", "the next starts in 0.02 s", "giving up",
    ]  # fmt: skip


async def test_deaths_with_service_between_them_are_not_in_a_row(start, make_request):
    stage = await start()
    for i in range(2 * HASTY.max_failures):
        worker = await stage.next_worker()
        await stage.until_ready()
        request = stage.client.submit(make_request(request_id=f"q{i}", max_tokens=1))
        (name,) = await submitted(worker, 1)
        worker.end(EventsOnly((TokenEvent(name, finish_reason=FinishReason.LENGTH),), 0))
        (end,) = await asyncio.wait_for(ends_of(request), DEADLINE_S)
        assert end.finish_reason is FinishReason.LENGTH
    await stage.next_worker()
    await stage.until_ready()


async def test_closing_within_the_back_off_doesnt_wait_for_it(start):
    stage = await start(Patience(first_back_off_s=3600.0))
    worker = await stage.next_worker()
    await stage.until_ready()
    worker.end()
    await stage.until(lambda: stage.supervisor.phase is Phase.RESTARTING and stage.supervisor.worker_pid is None)
    await asyncio.wait_for(stage.client.close(), DEADLINE_S)
    assert len(stage.workers) == 1


async def test_closing_while_a_process_is_started_ends_it_as_soon_as_it_is_there(start):
    stage = await start()
    worker = await stage.next_worker()
    await stage.until_ready()
    closing = []

    def slow(args):
        closing.append(asyncio.run_coroutine_threadsafe(stage.client.close(), stage._loop))
        while not stage.supervisor._stopping.is_set():
            pass
        return ActedWorker(args, is_ready=False)

    stage.acts[1] = slow
    worker.end()
    late = await stage.next_worker()
    await asyncio.wait_for(asyncio.wrap_future(closing[0]), DEADLINE_S)
    assert late.is_killed
    assert not stage.client.is_spawning


async def test_a_start_that_nothing_can_cut_short_is_left_behind_and_said(start):
    stage = await start()
    worker = await stage.next_worker()
    await stage.until_ready()
    gate = worker.may_end  # set when the test ends
    stage.acts[1] = lambda args: (gate.clear(), gate.wait(DEADLINE_S), ActedWorker(args, is_ready=False))[2]
    worker.end()
    await stage.until(lambda: stage.client.is_spawning)
    await asyncio.wait_for(stage.client.close(), DEADLINE_S)
    assert stage.client.is_spawning


@pytest.mark.parametrize(
    ("last_words", "said"),
    [
        ((), "the worker ended while it started: it ended without a word"),
        ((WorkerFailed("no such model"),), "no such model"),
    ],
)
async def test_who_ended_while_it_started_is_said_where_it_had_no_words_of_its_own(start, last_words, said):
    stage = await start(acts={0: functools.partial(ActedWorker, is_ready=False)})
    (await stage.next_worker()).end(*last_words)
    with pytest.raises(EngineFailed) as caught:
        await asyncio.wait_for(stage.client.wait_ready(), DEADLINE_S)
    assert caught.value.message == said
