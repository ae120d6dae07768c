"""vLLM's own counts among our metrics: gauges that fall with it, totals that don't."""

from __future__ import annotations

from everystep.messages import VllmLoad
from everystep.observe.observer import Observer
from everystep.types import FinishReason
from observe.made_steps import submit
from observe.scraping import Scrape

TOTALS = ("everystep_vllm_preemptions_total", "everystep_vllm_prefix_cache_hit_tokens_total")
GAUGES = (
    "everystep_vllm_num_requests_running",
    "everystep_vllm_num_requests_waiting",
    "everystep_vllm_kv_cache_usage_ratio",
)


def values(observer: Observer, names: tuple[str, ...]) -> list[float]:
    scrape = Scrape(observer)
    return [scrape.value(name) for name in names]


def test_the_last_counts_are_shown() -> None:
    observer = Observer(policies=("vllm",))
    assert values(observer, GAUGES + TOTALS) == [0, 0, 0, 0, 0]
    observer.vllm_load(VllmLoad(3, 2, 0.5, 1, 16))
    observer.vllm_load(VllmLoad(2, 0, 0.25, 4, 48))
    assert values(observer, GAUGES + TOTALS) == [2, 0, 0.25, 4, 48]


def test_a_vllm_that_is_gone_runs_nothing_and_its_totals_stay() -> None:
    observer = Observer(policies=("vllm",))
    observer.vllm_load(VllmLoad(2, 1, 0.5, 4, 48))
    observer.vllm_load(None)
    assert values(observer, GAUGES + TOTALS) == [0, 0, 0, 4, 48]
    observer.vllm_load(VllmLoad(1, 0, 0.1, 2, 16))  # another one, which counts from 0
    assert values(observer, TOTALS) == [6, 64]


def test_counts_below_the_last_ones_are_another_vllm_s() -> None:
    observer = Observer(policies=("vllm",))
    observer.vllm_load(VllmLoad(0, 0, 0.0, 4, 48))
    observer.vllm_load(VllmLoad(0, 0, 0.0, 0, 16))
    assert values(observer, TOTALS) == [4, 64]


def test_a_sequence_runs_from_when_vllm_scheduled_it() -> None:
    observer = Observer(policies=("vllm",))
    observer.accepted(submit("a", policy="vllm", arrival_s=1.0))
    assert Scrape(observer).value("everystep_num_requests_waiting", policy="vllm") == 1
    observer.started("a", 1.5)
    scrape = Scrape(observer)
    assert scrape.value("everystep_num_requests_running", policy="vllm") == 1
    assert scrape.value("everystep_request_queue_seconds_sum") == 0.5
    life = observer.requests.life("r", 2.0)
    assert life is not None
    assert [cause["duration_s"] for cause in life["sequences"][0]["queue"]] == [0.5]
    observer.finished("a", FinishReason.LENGTH, 3.0)
    assert Scrape(observer).open("vllm") == 0
    observer.started("a", 4.0)  # news of one that has ended is nobody's
    assert Scrape(observer).open("vllm") == 0


def test_servers_without_vllm_show_none_of_it() -> None:
    scrape = Scrape(Observer(policies=("static",)))
    assert not [sample for sample in scrape.samples if sample.name.startswith("everystep_vllm")]


def test_vllm_has_no_seats_of_ours() -> None:
    scrape = Scrape(Observer(policies=("static", "vllm")))
    assert {s.labels["policy"] for s in scrape.samples if s.name == "everystep_seat_steps_total"} == {"static"}
