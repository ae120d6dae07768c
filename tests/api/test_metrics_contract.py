"""``/metrics`` of a real engine has every name of the contract, of its kind and with its labels, and its sums agree."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.harness import Server

LANES = {"static", "per_token", "continuous"}
OUTCOMES = {"stop", "length", "aborted", "failed", "timeout", "rejected"}
STATES = {"working", "held", "empty"}
# As the contract writes them: the sample's name, its kind, and each label with the values it has.
COUNTERS_AND_GAUGES = {
    "everystep_requests_total": ("counter", {"policy": LANES, "outcome": OUTCOMES}),
    "everystep_requests_accepted_total": ("counter", {"policy": LANES}),
    "everystep_num_requests_running": ("gauge", {"policy": LANES}),
    "everystep_num_requests_waiting": ("gauge", {"policy": LANES}),
    "everystep_kv_cache_usage_ratio": ("gauge", {}),
    "everystep_prefix_cache_hit_tokens_total": ("counter", {}),
    "everystep_preemptions_total": ("counter", {}),
    "everystep_seat_steps_total": ("counter", {"policy": LANES, "state": STATES}),
}
HISTOGRAMS = [
    "everystep_time_to_first_token_seconds",
    "everystep_inter_token_latency_seconds",
    "everystep_request_queue_seconds",
    "everystep_e2e_request_seconds",
    "everystep_step_seconds",
    "everystep_step_tokens",
]


async def scrape(server: Server) -> dict[str, tuple[str, list]]:
    """By sample name: the family's kind and the samples."""
    reply = await server.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    found: dict[str, tuple[str, list]] = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            found.setdefault(sample.name, (family.type, []))[1].append(sample)
    return found


@pytest.mark.parametrize("name", COUNTERS_AND_GAUGES)
async def test_a_name_of_the_contract_is_there_with_every_value_of_its_labels(server: Server, name: str) -> None:
    wanted_kind, wanted_labels = COUNTERS_AND_GAUGES[name]
    kind, samples = (await scrape(server))[name]
    assert kind == wanted_kind
    values = defaultdict(set)
    for sample in samples:
        for label, value in sample.labels.items():
            values[label].add(value)
    assert values == wanted_labels
    num = 1
    for label_values in wanted_labels.values():
        num *= len(label_values)
    assert len(samples) == num


@pytest.mark.parametrize("name", HISTOGRAMS)
async def test_a_histogram_of_the_contract_is_one_whose_buckets_only_grow(server: Server, name: str) -> None:
    await server.post("/generate", prompts=["x", "y"], max_tokens=4)
    found = await scrape(server)
    kind, buckets = found[f"{name}_bucket"]
    assert kind == "histogram"
    counts = [sample.value for sample in buckets]
    bounds = [float(sample.labels["le"]) for sample in buckets]
    assert counts == sorted(counts)
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")
    assert counts[-1] == found[f"{name}_count"][1][0].value > 0
    assert found[f"{name}_sum"][1][0].value > 0


async def test_accepted_is_ended_and_running_and_waiting_at_a_scrape_amid_the_work(server: Server) -> None:
    server.runner.hold()
    sending = asyncio.create_task(server.post("/generate", prompts=["x"] * 6, max_tokens=4, ignore_eos=True))
    await server.run_steps(2)
    found = await scrape(server)

    def value(name: str, **labels: str) -> float:
        return sum(one.value for one in found[name][1] if labels.items() <= one.labels.items())

    running = value("everystep_num_requests_running", policy="static")
    waiting = value("everystep_num_requests_waiting", policy="static")
    assert (running, waiting) == (4, 2)
    ended = value("everystep_requests_total", policy="static") - value(
        "everystep_requests_total", policy="static", outcome="rejected"
    )
    assert value("everystep_requests_accepted_total", policy="static") == 6 == ended + running + waiting
    assert value("everystep_seats", policy="static") == 4
    assert value("everystep_max_queue_requests") == 256
    assert value("everystep_seconds_since_progress") > 0
    server.runner.release()
    assert (await sending).status_code == 200


async def test_every_family_says_in_words_what_it_is(server: Server) -> None:
    families = list(text_string_to_metric_families((await server.http.get("/metrics")).text))
    assert all(family.name.startswith("everystep_") for family in families)
    assert [family.name for family in families if len(family.documentation) < 10 or family.type == "unknown"] == []
    assert len({family.name for family in families}) == len(families)
