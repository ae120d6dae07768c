"""A policy that plans nothing though sequences wait: said, recorded, and replaced; never an idle spin."""

import asyncio

import pytest

from everystep.engine import bootstrap
from everystep.engine.client import EngineClient
from everystep.engine.client.patience import Patience
from everystep.errors import EngineFailed, SchedulerStuck
from everystep.observe.schedule import Broke, Header
from everystep.observe.schedule_reader import read_schedule
from everystep.runner.fake import FakeRunner, generate
from everystep.sched import ContinuousPolicy
from everystep.sched.from_settings import build_lanes
from everystep.schedule_replay import replay_schedule
from everystep.types import FinishReason, StepPlan

VOCAB = 384
DEADLINE_S = 30.0


class Refusing(ContinuousPolicy):
    """Plans ``num_plans`` steps, then nobody any more, though seats are free."""

    num_plans = 2

    def plan(self, now_s):
        if self.num_plans == 0:
            return StepPlan(self.name)
        self.num_plans -= 1
        return super().plan(now_s)


@pytest.fixture
def broken_once(monkeypatch):
    """The first core that is made has a continuous lane that refuses; those after it are well."""
    made = []

    def build(settings, pool, max_model_len, lanes):
        built = dict(build_lanes(settings, pool, max_model_len, lanes))
        if not made:
            built["continuous"] = Refusing(pool=pool)
        made.append(built)
        return built

    monkeypatch.setattr(bootstrap, "build_lanes", build)


def test_a_core_whose_lanes_have_work_and_plan_nothing_raises_after_three_plans_with_their_lines(make_core):
    bench = make_core()
    bench.core.lanes["continuous"] = bench.core._turns.lanes["continuous"] = lane = Refusing(pool=bench.pool)
    bench.submit("a", "continuous")
    bench.step()
    bench.submit("b", "continuous")
    lane.num_plans = 0
    assert bench.step() is None
    assert bench.step() is None
    with pytest.raises(SchedulerStuck, match=r"plan no step, and nothing will change that:.* continuous \(1 wait\)"):
        bench.step()


def test_a_plan_to_spare_or_a_time_to_wait_for_is_no_reason_to_give_up(make_core):
    bench = make_core(static_max_wait=5.0)
    bench.submit("waits", "static", max_tokens=1)
    for _ in range(20):
        assert bench.step() is None
    bench.core.lanes["continuous"] = bench.core._turns.lanes["continuous"] = lane = Refusing(pool=bench.pool)
    bench.time_s = 5.0
    assert bench.step() is not None
    for i in range(5):
        bench.submit(f"s{i}", "continuous", max_tokens=1)
        lane.num_plans = 0
        assert bench.step() is None
        assert bench.step() is None
        lane.num_plans = 1
        assert bench.step() is not None


async def test_its_worker_ends_with_words_and_the_next_one_serves_and_a_replay_fails_alike(
    make_settings, make_request, broken_once, tmp_path
):
    record = tmp_path / "schedule.jsonl"
    client = EngineClient(
        make_settings(record=record, drain_timeout=0.0),
        spawn=EngineClient.in_process(make_settings(), lambda: FakeRunner(vocab_size=VOCAB))._spawn,
        patience=Patience(first_back_off_s=0.01),
    )
    await client.start()
    await client.wait_ready()
    async with asyncio.timeout(DEADLINE_S):
        while not client.status.is_ready:
            await asyncio.sleep(0.005)
        requests = [client.submit(make_request((i, 2), (3, i), request_id=f"q{i}", max_tokens=50)) for i in range(4)]
        ends = [delta for request in requests async for delta in request if delta.finish_reason]
        assert [end.finish_reason for end in ends] == [FinishReason.FAILED] * 8
        assert all(isinstance(end.failure, EngineFailed) for end in ends)
        assert all("plan no step" in end.error for end in ends)
        while not client.status.is_ready:
            await asyncio.sleep(0.005)
        async with client.submit(make_request(request_id="after")) as after:
            tokens = [token.token_id async for delta in after for token in delta.tokens]
    assert tokens == generate((1, 2, 3), 8, VOCAB)
    await client.close()
    items = list(read_schedule(record))
    assert sum(isinstance(item, Header) for item in items) == 2
    (broke,) = [item.ran for item in items if isinstance(getattr(item, "ran", None), Broke)]
    assert broke.error.startswith("SchedulerStuck: lanes have work but plan no step")

    def make_lanes(settings, pool, header):
        own = dict(build_lanes(settings, pool, header.max_model_len, header.seats))
        return own | ({"continuous": Refusing(pool=pool)} if header.first_step == 0 else {})

    report = replay_schedule(record, make_lanes)
    assert report.is_equal, report
    assert any("so did this one: SchedulerStuck" in note for note in report.notes)
