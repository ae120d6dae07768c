"""The exposition: every name of the contract from the start, and each number from what was told."""

from __future__ import annotations

import pytest

from everystep.messages import EngineInfo, EngineStatus
from everystep.observe.observer import Observer
from everystep.types import FinishReason
from observe.made_steps import output, row, submit
from observe.scraping import Scrape

POLICIES = ("static", "per_token", "continuous")
OUTCOMES = ("stop", "length", "aborted", "failed", "timeout", "rejected")


@pytest.fixture
def observer() -> Observer:
    return Observer(policies=POLICIES)


def test_every_labelled_series_stands_at_zero_before_anything_happens(observer: Observer) -> None:
    scrape = Scrape(observer)
    for policy in POLICIES:
        assert scrape.value("everystep_requests_accepted_total", policy=policy) == 0
        assert scrape.value("everystep_num_requests_running", policy=policy) == 0
        assert scrape.value("everystep_num_requests_waiting", policy=policy) == 0
        for outcome in OUTCOMES:
            assert scrape.value("everystep_requests_total", policy=policy, outcome=outcome) == 0
        for state in ("working", "held", "empty"):
            assert scrape.value("everystep_seat_steps_total", policy=policy, state=state) == 0


@pytest.mark.parametrize(
    "name",
    [
        "everystep_kv_cache_usage_ratio",
        "everystep_prefix_cache_hit_tokens_total",
        "everystep_preemptions_total",
        "everystep_prompt_tokens_total",
        "everystep_generation_tokens_total",
        "everystep_worker_restarts_total",
        "everystep_time_to_first_token_seconds_count",
        "everystep_inter_token_latency_seconds_count",
        "everystep_request_queue_seconds_count",
        "everystep_e2e_request_seconds_count",
        "everystep_step_seconds_count",
        "everystep_step_tokens_count",
    ],
)
def test_every_name_without_a_label_stands_at_zero_before_anything_happens(observer: Observer, name: str) -> None:
    assert Scrape(observer).value(name) == 0


def test_each_family_is_typed_and_explained_and_bears_the_product_s_name(observer: Observer) -> None:
    families = Scrape(observer).families
    assert len(families) > 15
    assert all(family.name.startswith("everystep_") and len(family.documentation) > 10 for family in families)
    kinds = {family.name: family.type for family in families}
    assert kinds["everystep_requests"] == "counter"
    assert kinds["everystep_num_requests_running"] == "gauge"
    assert kinds["everystep_step_seconds"] == "histogram"


def test_the_help_text_says_that_a_request_is_a_sequence(observer: Observer) -> None:
    [family] = [one for one in Scrape(observer).families if one.name == "everystep_requests_accepted"]
    assert "one sequence: a prompt, or one of its n choices" in family.documentation


def test_two_observers_count_apart(observer: Observer) -> None:
    observer.accepted(submit("a"))
    assert Scrape(Observer(policies=POLICIES)).total("everystep_requests_accepted_total") == 0


def test_a_step_counts_its_seats_tokens_and_time(observer: Observer) -> None:
    rows = [row(0, "a", phase="prefill", new=5), row(1, "b"), row(2, "c", phase="held", new=0)]
    observer.step(output(0, policy="static", rows=rows, num_seats=8, step_s=0.25, num_prefix_hit_tokens=32))
    scrape = Scrape(observer)
    seat_steps = {
        state: scrape.value("everystep_seat_steps_total", policy="static", state=state)
        for state in ("working", "held", "empty")
    }
    assert seat_steps == {"working": 2, "held": 1, "empty": 5}
    assert scrape.value("everystep_step_tokens_sum") == 6
    assert scrape.value("everystep_step_seconds_sum") == pytest.approx(0.25)
    assert scrape.value("everystep_step_seconds_bucket", le="0.1") == 0
    assert scrape.value("everystep_step_seconds_bucket", le="0.5") == 1
    assert scrape.value("everystep_prefix_cache_hit_tokens_total") == 32


def test_the_first_token_counts_for_ttft_and_each_other_for_the_time_between(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    for now_s in (1.5, 1.75, 2.25):
        observer.token("a", now_s)
    scrape = Scrape(observer)
    assert scrape.value("everystep_time_to_first_token_seconds_count") == 1
    assert scrape.value("everystep_time_to_first_token_seconds_sum") == pytest.approx(0.5)
    assert scrape.value("everystep_inter_token_latency_seconds_count") == 2
    assert scrape.value("everystep_inter_token_latency_seconds_sum") == pytest.approx(0.75)
    assert scrape.value("everystep_generation_tokens_total") == 3


def test_queueing_ends_with_the_first_seat_and_a_resumption_is_no_second_one(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.step(output(0, start_s=3.0, rows=[row(0, "a")], started=["a"]))
    observer.step(output(1, start_s=4.0, preempted=["a"]))
    assert Scrape(observer).value("everystep_num_requests_waiting", policy="continuous") == 1
    observer.step(output(2, start_s=9.0, rows=[row(0, "a")], started=["a"]))
    scrape = Scrape(observer)
    assert scrape.value("everystep_num_requests_running", policy="continuous") == 1
    assert scrape.value("everystep_request_queue_seconds_count") == 1
    assert scrape.value("everystep_request_queue_seconds_sum") == pytest.approx(2.0)
    assert scrape.value("everystep_prompt_tokens_total") == 3
    assert scrape.value("everystep_preemptions_total") == 1


def test_a_sequence_ends_once_however_often_it_is_told(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.finished("a", FinishReason.STOP, 3.0)
    observer.finished("a", FinishReason.ABORTED, 4.0)
    observer.token("a", 5.0)
    observer.step(output(0, rows=[row(0, "a")], started=["a"], preempted=["a"]))
    scrape = Scrape(observer)
    assert scrape.value("everystep_requests_total", policy="continuous", outcome="stop") == 1
    assert scrape.value("everystep_requests_total", policy="continuous", outcome="aborted") == 0
    assert scrape.value("everystep_e2e_request_seconds_sum") == pytest.approx(2.0)
    assert scrape.value("everystep_generation_tokens_total") == 0
    assert scrape.value("everystep_request_queue_seconds_count") == 0


def test_the_cache_is_in_use_until_the_worker_says_that_it_isn_t(observer: Observer) -> None:
    """Whoever has ended: a leak would show."""
    observer.accepted(submit("a"))
    observer.step(output(0, rows=[row(0, "a")], started=["a"], blocks_used=512))
    assert Scrape(observer).value("everystep_kv_cache_usage_ratio") == 0.25
    observer.finished("a", FinishReason.ABORTED, 1.0)
    assert Scrape(observer).value("everystep_kv_cache_usage_ratio") == 0.25
    observer.blocks(1024)
    assert Scrape(observer).value("everystep_kv_cache_usage_ratio") == 0.5
    observer.blocks(0)
    assert Scrape(observer).value("everystep_kv_cache_usage_ratio") == 0


def test_a_worker_that_ended_holds_no_cache(observer: Observer) -> None:
    observer.step(output(0, blocks_used=512))
    observer.worker_ended()
    assert Scrape(observer).value("everystep_kv_cache_usage_ratio") == 0


def test_restarts_and_readiness_are_told(observer: Observer) -> None:
    observer.worker_restarted()
    assert Scrape(observer).value("everystep_worker_restarts_total") == 1
    assert Scrape(observer, EngineStatus(is_live=True, is_ready=False)).value("everystep_engine_ready") == 0
    assert Scrape(observer, EngineStatus(is_live=True, is_ready=True)).value("everystep_engine_ready") == 1


def test_the_info_series_names_what_serves_once_it_is_known(observer: Observer) -> None:
    unknown = Scrape(observer, version="1.2.3")
    assert unknown.value("everystep_info", version="1.2.3", model="", runner="", precision="") == 1
    info = EngineInfo("smollm2-135m", "openvino", "int8", 2, 16, 100, 4096, 2048, {}, {})
    known = Scrape(observer, EngineStatus(is_live=True, is_ready=True, info=info), version="1.2.3")
    assert (
        known.value("everystep_info", version="1.2.3", model="smollm2-135m", runner="openvino", precision="int8") == 1
    )


def test_no_progress_is_counted_from_the_last_step_or_from_when_work_came(observer: Observer) -> None:
    def since(now_s: float) -> float:
        return Scrape(observer, now_s=now_s).value("everystep_seconds_since_progress")

    observer.step(output(0, start_s=1.0, step_s=0.5))
    assert since(9.0) == 0, "nobody asks for anything"
    observer.accepted(submit("a", arrival_s=9.0))
    assert since(9.5) == pytest.approx(0.5), "the idle time before it came is no stall"
    observer.accepted(submit("b", arrival_s=10.0))
    assert since(12.0) == pytest.approx(3.0)
    observer.step(output(1, start_s=9.0, step_s=4.0, rows=[row(0, "a")], started=["a"]))
    assert since(13.25) == pytest.approx(0.25)
    for name in ("a", "b"):
        observer.finished(name, FinishReason.STOP, 14.0)
    assert since(99.0) == 0


def test_prompt_tokens_wait_until_their_request_has_a_seat(observer: Observer) -> None:
    observer.accepted(submit("a"))
    observer.accepted(submit("b"))
    waiting = "everystep_num_prompt_tokens_waiting"
    assert Scrape(observer).value(waiting, policy="continuous") == 6
    observer.step(output(0, rows=[row(0, "a")], started=["a"]))
    assert Scrape(observer).value(waiting, policy="continuous") == 3
    assert Scrape(observer).value(waiting, policy="static") == 0


def test_the_blocks_in_use_are_told_as_a_number_too(observer: Observer) -> None:
    observer.step(output(0, blocks_used=512))
    assert Scrape(observer).value("everystep_kv_cache_blocks_used") == 512


def test_requests_make_no_series_of_their_own(observer: Observer) -> None:
    """A scraper keeps every series for ever."""
    before = {(sample.name, *sample.labels.values()) for sample in Scrape(observer).samples}
    for number in range(100):
        observer.accepted(submit(f"s{number}"))
        observer.step(output(number, rows=[row(0, f"s{number}")], started=[f"s{number}"]))
        observer.token(f"s{number}", float(number))
    observer.finished("s0", FinishReason.STOP, 100.0)
    assert {(sample.name, *sample.labels.values()) for sample in Scrape(observer).samples} == before
