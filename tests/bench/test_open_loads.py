"""Open loads: whose turn it is, what all of them get, and who isn't asked for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.passes_by_hand import ContenderByHand
from everystep.analysis.load import Arrival
from everystep.bench.open_loop import OpenCell, run_open
from everystep.bench.open_order import SWEEP, OpenOrder
from everystep.bench.passes import Contender
from everystep.errors import ConfigError

ORDER = OpenOrder(rates=(1.0, 2.0, 4.0), prompt_tokens="uniform:2,9", output_tokens="5", num_requests=40, seed=3)
Served = list[tuple[str, list[Arrival], list[list[int]]]]


def contenders(*names: str) -> tuple[list[ContenderByHand], Served]:
    """They note into one list what they serve."""
    served: Served = []
    made = [ContenderByHand(name, []) for name in names]
    for one in made:
        one.served = served
    return made, served


async def run(made: Sequence[ContenderByHand], order: OpenOrder = ORDER) -> tuple[list[OpenCell], list[str]]:
    skipped: list[str] = []

    def on_skipped(contender: Contender, rate: float, num_rates: int) -> None:
        skipped.append(f"{contender.label} at {rate:g}, spared {num_rates}")

    cells = [cell async for cell in run_open(made, order, range(100, 200), lambda words: None, on_skipped)]
    return cells, skipped


async def test_contenders_alternate_within_a_rate_and_another_begins_at_the_next() -> None:
    made, _ = contenders("a", "b", "c")
    cells, _ = await run(made)
    assert [(cell.contender.policy, cell.rate) for cell in cells] == [
        ("a", 1.0), ("b", 1.0), ("c", 1.0), ("b", 2.0), ("c", 2.0), ("a", 2.0), ("c", 4.0), ("a", 4.0), ("b", 4.0),
    ]  # fmt: skip


async def test_everybody_rests_before_each_warm_up_and_each_load() -> None:
    made, served = contenders("a", "b")
    num_served_at_rest: list[int] = []

    async def rest() -> None:
        num_served_at_rest.append(len(served))

    async for _ in run_open(made, ORDER, range(100, 200), lambda words: None, rest=rest):
        pass
    assert num_served_at_rest == list(range(2 * 2 * 3))


async def test_all_get_the_same_arrivals_and_prompts_at_a_rate_and_other_prompts_at_the_next() -> None:
    made, served = contenders("a", "b")
    await run(made)
    turns = [turn for turn in served if len(turn[1]) == 40]
    assert [turns[0][1:], turns[2][1:]] == [turns[1][1:], turns[3][1:]]
    assert turns[0][2] != turns[2][2]
    load, prompts = turns[0][1:]
    assert [arrival.prompt_tokens for arrival in load] == [len(prompt) for prompt in prompts]
    assert all(100 <= token < 200 for prompt in prompts for token in prompt)


async def test_a_few_requests_at_once_warm_up_before_each_load() -> None:
    made, served = contenders("a")
    await run(made)
    assert [len(load) for _, load, _ in served] == [8, 40] * 3
    first = served[0][1]
    assert all((arrival.at_s, arrival.output_tokens) == (0.0, 4) for arrival in first)
    assert [arrival.prompt_tokens for arrival in first] == [arrival.prompt_tokens for arrival in served[1][1][:8]]


async def test_who_cant_keep_up_is_spared_the_higher_rates_and_the_others_go_on() -> None:
    made, _ = contenders("slow", "quick")
    made[0].takes_s = lambda at_s: 0.5 if at_s < 1 else at_s  # its line grows by all that comes
    cells, skipped = await run(made)
    assert [(cell.contender.policy, cell.rate, cell.verdict.is_saturated) for cell in cells] == [
        ("slow", 1.0, True), ("quick", 1.0, False), ("quick", 2.0, False), ("quick", 4.0, False),
    ]  # fmt: skip
    assert skipped == ["slow at 1, spared 2"]


async def test_past_saturation_everybody_gets_every_rate() -> None:
    made, _ = contenders("slow")
    made[0].takes_s = lambda at_s: at_s
    cells, skipped = await run(made, replace(ORDER, past_saturation=True))
    assert [cell.rate for cell in cells] == [1.0, 2.0, 4.0]
    assert skipped == []


async def test_a_sweep_ends_when_all_are_saturated() -> None:
    made, _ = contenders("a", "b")
    for one in made:
        one.takes_s = lambda at_s: at_s
    cells, _ = await run(made, replace(ORDER, rates=SWEEP))
    assert [(cell.contender.policy, cell.rate) for cell in cells] == [("a", 0.25), ("b", 0.25)]


def test_arrivals_scale_with_the_rate_and_are_those_of_the_seed() -> None:
    slow, quick = ORDER.load(1.0), ORDER.load(4.0)
    assert slow == ORDER.load(1.0)
    assert [arrival.at_s for arrival in quick] == pytest.approx([arrival.at_s / 4 for arrival in slow])
    assert slow != replace(ORDER, seed=4).load(1.0)


def test_a_duration_makes_as_many_requests_as_the_rate_brings() -> None:
    order = OpenOrder(rates=(2.0, 5.0), duration_s=30.0)
    assert [len(order.load(rate)) for rate in order.rates] == [60, 150]


def test_a_plain_number_is_a_lognormal_laws_median() -> None:
    order = OpenOrder(rates=(1.0,), dataset="lognormal", prompt_tokens="100", num_requests=2001)
    lengths = sorted(arrival.prompt_tokens for arrival in order.load(1.0))
    assert lengths[1000] == pytest.approx(100, rel=0.1)
    assert lengths[0] < 50 < 200 < lengths[-1]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    times_s = (10.0, 11.0, 14.0, 20.0)
    path.write_text("".join(f'{{"timestamp": {at_s}, "input_length": 8, "output_length": 4}}\n' for at_s in times_s))
    return path


def times_s(order: OpenOrder, rate: float | None = None) -> list[float]:
    return [arrival.at_s for arrival in order.load(rate)]


def test_a_trace_keeps_its_own_times_or_gets_a_rate(trace: Path) -> None:
    assert times_s(OpenOrder(dataset=str(trace))) == [0.0, 1.0, 4.0, 10.0]
    assert times_s(OpenOrder(dataset=str(trace), time_scale=2.0)) == [0.0, 2.0, 8.0, 20.0]
    assert times_s(OpenOrder(dataset=str(trace), max_requests=2)) == [0.0, 1.0]
    assert times_s(OpenOrder(dataset=str(trace), duration_s=4.0)) == [0.0, 1.0, 4.0]
    assert times_s(OpenOrder(dataset=str(trace), rates=(3.0,)), 3.0) == pytest.approx([0.0, 0.1, 0.4, 1.0])


async def test_a_traces_own_rate_is_its_mean(trace: Path) -> None:
    made, _ = contenders("a")
    (cell,), _ = await run(made, OpenOrder(dataset=str(trace)))
    assert cell.rate == pytest.approx(0.3), "three gaps in ten seconds"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "--dataset fixed has no times of its own: give --rate"),
        ({"rates": (1.0,), "prompt_tokens": "many"}, "lengths 'many'"),
        ({"rates": (1.0,), "arrivals": "now"}, "arrivals 'now'"),
        ({"dataset": "nowhere.csv"}, "can't read nowhere.csv"),
    ],
)
def test_an_order_that_cant_be_is_refused_before_anything_starts(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        OpenOrder(**fields)  # type: ignore[arg-type]


def test_a_trace_of_one_moment_has_no_rate_of_its_own(trace: Path) -> None:
    with pytest.raises(ConfigError, match="1 requests within 0 s have no rate"):
        OpenOrder(dataset=str(trace), max_requests=1)


def test_a_trace_is_scaled_once(trace: Path) -> None:
    with pytest.raises(ConfigError, match="--rate scales a trace's times, and so does --time-scale"):
        OpenOrder(dataset=str(trace), rates=(1.0,), time_scale=2.0)
