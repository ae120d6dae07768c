"""Real lanes on a scripted runner, seen through the observer: rounds, held seats, causes."""

from __future__ import annotations

from collections.abc import Mapping

from everystep.engine.core import EngineCore
from everystep.messages import StepOutput, Submit
from everystep.observe.observer import Observer
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy, StaticPolicy
from everystep.types import Policy
from observe.scraping import Scrape

STEP_S = 0.1


class Bench:
    """An engine core whose clock moves by a step's time, and the observer that is told of it."""

    def __init__(self, **lanes: Policy) -> None:
        self.now_s = 0.0
        pool = next(iter(lanes.values())).pool  # type: ignore[attr-defined]
        runner = FakeRunner(block_size=pool.block_size)
        runner.allocate(pool.num_blocks)
        self.core = EngineCore(runner=runner, lanes=lanes, pool=pool, now_s=lambda: self.now_s)
        self.observer = Observer(policies=tuple(lanes))

    def submit(self, policy: str, max_tokens: Mapping[str, int], prompt: int = 5) -> None:
        for name, limit in max_tokens.items():
            params = SamplingParams(max_tokens=limit, ignore_eos=True)
            message = Submit(name, name[0], policy, tuple(range(1, prompt + 1)), params, 0, (), 0, self.now_s)
            self.observer.accepted(message)
            self.core.submit(message)

    def step(self) -> StepOutput | None:
        output = self.core.step()
        if output is None:
            return None
        self.observer.step(output)
        self.now_s += STEP_S
        for event in output.events:
            if event.token is not None:
                self.observer.token(event.sequence_id, self.now_s)
            if event.finish_reason is not None:
                self.observer.finished(event.sequence_id, event.finish_reason, self.now_s)
        return output

    def run(self) -> None:
        while self.core.has_work():
            assert self.step() is not None


def test_six_prompts_on_four_seats_are_seen_as_rounds_of_four_and_two() -> None:
    bench = Bench(static=StaticPolicy(4, pool=BlockPool()))
    bench.submit("static", {f"r-{i}": 3 for i in range(6)})
    bench.run()
    steps = bench.observer.step_log.since(-1, 100)["steps"]
    firsts = [step for step in steps if step["rows"][0]["phase"] == "prefill"]
    assert [len(step["rows"]) for step in firsts] == [4, 2]
    assert [step["shape"] for step in firsts] == [[4, 5], [2, 5]]
    assert [(one["sequence_id"], one["why"]) for one in steps[1]["waiting"]] == [
        ("r-4", "round_running"),
        ("r-5", "round_running"),
    ]
    life = bench.observer.requests.life("r", bench.now_s)
    assert life is not None
    assert [one["first_step"] for one in life["sequences"]] == [0, 0, 0, 0, 3, 3]


def test_a_static_round_holds_the_seats_of_the_ended_and_a_continuous_lane_holds_none() -> None:
    pool = BlockPool()
    bench = Bench(static=StaticPolicy(4, pool=pool), continuous=ContinuousPolicy(4, pool=pool))
    bench.submit("static", {"a": 5, "b": 5, "c": 5, "d": 60})
    bench.submit("continuous", {"e": 5, "f": 5, "g": 5, "h": 60})
    bench.run()
    scrape = Scrape(bench.observer)
    for policy, held in (("static", 3 * 55), ("continuous", 0)):
        assert scrape.value("everystep_seat_steps_total", policy=policy, state="held") == held
        assert scrape.value("everystep_seat_steps_total", policy=policy, state="working") == 3 * 5 + 60
        assert scrape.value("everystep_requests_total", policy=policy, outcome="length") == 4
        assert scrape.open(policy) == 0
    life = bench.observer.requests.life("a", bench.now_s)
    assert life is not None
    assert life["sequences"][0]["num_held_steps"] == 55


def test_preempted_sequences_wait_again_and_all_is_zero_at_the_end() -> None:
    pool = BlockPool(num_blocks=8, block_size=4)
    bench = Bench(continuous=ContinuousPolicy(4, 16, pool=pool))
    bench.submit("continuous", {name: 12 for name in "abcd"}, prompt=6)
    most_waiting = 0.0
    while bench.core.has_work():
        assert bench.step() is not None
        scrape = Scrape(bench.observer)
        most_waiting = max(most_waiting, scrape.value("everystep_num_requests_waiting", policy="continuous"))
        accepted = scrape.value("everystep_requests_accepted_total", policy="continuous")
        assert accepted == scrape.ended("continuous") + scrape.open("continuous") == 4
        last = list(bench.observer.step_log.steps(bench.observer.step_log.last_step - 1))[-1]
        num_seated = len(last.record.rows) - sum(row.finish is not None for row in last.record.rows)
        assert scrape.value("everystep_num_requests_running", policy="continuous") == num_seated
    assert scrape.total("everystep_preemptions_total") > 0
    assert most_waiting > 0
    assert scrape.open("continuous") == 0
    assert scrape.value("everystep_kv_cache_usage_ratio") == 0
