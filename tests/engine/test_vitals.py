"""When a worker counts as stuck: judged by its beat, by its steps, and by the size of the pass that it is in."""

import pytest

from everystep.engine.client.patience import Patience
from everystep.engine.client.vitals import Vitals
from everystep.engine.heartbeat import SLOTS, Heartbeat
from everystep.types import FinishReason, TokenEvent


class Bench:
    """Spawned at 100 s; ready at 110 s unless told otherwise.  Stall deadline 60 s, start deadline 900 s."""

    def __init__(self, *, ready_s=110.0, company_s=0.0):
        self.heartbeat = Heartbeat([0.0] * SLOTS)
        self.has_work = True
        self.vitals = Vitals(
            self.heartbeat,
            lambda: self.has_work,
            spawned_s=100.0,
            start_timeout_s=900.0,
            stall_timeout_s=60.0,
            company_s=company_s,
        )
        if ready_s is not None:
            self.vitals.note_ready(ready_s)

    def verdict(self, now_s):
        silence = self.vitals.silence(now_s)
        return "dead" if silence.is_fatal else "stuck" if silence.is_long else "well"


def test_a_worker_without_a_beat_is_stuck_at_half_of_the_deadline_and_dead_behind_it():
    bench = Bench()
    bench.has_work = False
    bench.heartbeat.beat(200.0)
    assert [bench.verdict(now_s) for now_s in (229.0, 231.0, 259.0, 261.0)] == ["well", "stuck", "stuck", "dead"]


def test_a_worker_that_beats_but_makes_no_step_though_requests_are_open_is_as_dead():
    bench = Bench()
    bench.vitals.note_step(200.0)
    verdicts = []
    for now_s in (229.0, 231.0, 261.0):
        bench.heartbeat.beat(now_s)
        verdicts.append(bench.verdict(now_s))
    assert verdicts == ["well", "stuck", "dead"]
    assert "though requests are open" in bench.vitals.silence(261.0).words


def test_an_idle_worker_is_well_for_ever_and_its_time_begins_with_the_first_request():
    bench = Bench()
    bench.has_work = False
    bench.heartbeat.beat(10_000.0)
    assert bench.verdict(10_000.0) == "well"
    bench.has_work = True
    bench.heartbeat.beat(10_029.0)
    assert bench.verdict(10_029.0) == "well"
    bench.heartbeat.beat(10_031.0)
    assert bench.verdict(10_031.0) == "stuck"


def test_a_long_prompt_in_one_pass_has_a_second_for_each_twenty_tokens_more():
    bench = Bench()
    bench.vitals.note_step(200.0)
    bench.heartbeat.begin_pass(200.0, 4_000)  # 60 + 200 s
    assert [bench.verdict(200.0 + age_s) for age_s in (129.0, 131.0, 259.0, 261.0)] == [
        "well",
        "stuck",
        "stuck",
        "dead",
    ]
    bench.heartbeat.beat(300.0)
    bench.vitals.note_step(300.0)
    assert bench.verdict(361.0) == "dead", "the pass is over, and with it the allowance"


def test_a_lane_that_waits_for_company_has_that_time_more():
    bench = Bench(company_s=600.0)
    bench.vitals.note_step(200.0)
    bench.heartbeat.beat(520.0)
    assert bench.verdict(520.0) == "well"
    bench.heartbeat.beat(861.0)
    assert bench.verdict(861.0) == "dead"


def test_a_worker_that_never_says_a_word_is_dead_behind_the_start_deadline_whatever_its_beat():
    bench = Bench(ready_s=None)
    bench.heartbeat.beat(900.0)
    assert bench.verdict(999.0) != "dead"
    assert bench.verdict(1_001.0) == "dead"
    assert bench.vitals.silence(1_001.0).words == "no word since its start 901 s ago"


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_one_sequence_brought_to_its_end_is_service(reason):
    bench = Bench()
    for other in (None, FinishReason.ABORTED, FinishReason.TIMEOUT, FinishReason.FAILED):
        bench.vitals.note_events((TokenEvent("s", finish_reason=other),))
    assert not bench.vitals.has_served(111.0, steady_s=60.0)
    bench.vitals.note_events((TokenEvent("s", finish_reason=reason),))
    assert bench.vitals.has_served(111.0, steady_s=60.0)


def test_a_minute_of_readiness_is_service_and_a_start_isnt():
    assert not Bench().vitals.has_served(170.0, steady_s=60.0)
    assert Bench().vitals.has_served(171.0, steady_s=60.0)
    assert not Bench(ready_s=None).vitals.has_served(10_000.0, steady_s=60.0)


def test_the_wait_before_a_start_doubles_up_to_its_bound():
    waits_s = [Patience().back_off_s(num_failures) for num_failures in range(1, 10)]
    assert waits_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])
