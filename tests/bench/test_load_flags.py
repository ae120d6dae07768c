"""Flags that make an order, and those that don't go together: one line, before anything starts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import click
import pytest

from everystep.bench.closed_findings import ClosedOrder
from everystep.bench.open_order import SWEEP, OpenOrder
from everystep.bench.orders import order_of, parse_rates
from everystep.bench.peers.targets import Target, parse_target
from everystep.cli_bench import bench
from everystep.errors import ConfigError


def order(*args: str) -> ClosedOrder | OpenOrder:
    """As the command reads it."""
    context = bench.make_context("bench", list(args))
    default = click.core.ParameterSource.DEFAULT
    given = {name for name in context.params if context.get_parameter_source(name) is not default}
    return order_of(context.params, given)


def test_without_a_rate_the_load_is_closed_as_ever() -> None:
    assert order() == ClosedOrder((1, 4, 16, 64), (3, 3, 3, 3), 6, 20, 0)
    assert order("-n", "2,8", "--repeats", "5,1", "--prompt-tokens", "7") == ClosedOrder((2, 8), (5, 1), 7, 20, 0)


def test_a_rate_makes_it_open() -> None:
    made = order("--rate", "4,1,4", "--output-tokens", "uniform:1,9", "--slo-ttft", "0.5", "--requests", "10")
    assert isinstance(made, OpenOrder)
    assert (made.rates, made.output_tokens, made.prompt_tokens, made.num_requests) == (
        (1.0, 4.0),
        "uniform:1,9",
        "128",
        10,
    )
    assert (made.slo.ttft_s, made.slo.tpot_s) == (0.5, None)


def test_a_sweep_doubles() -> None:
    assert parse_rates("sweep") == SWEEP
    assert [high / low for low, high in pairwise(SWEEP)] == [2.0] * (len(SWEEP) - 1)


def test_a_trace_makes_it_open_at_its_own_times(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,5,3\n2023-11-16 18:15:50.6,9,2\n")
    made = order("--dataset", str(trace), "--length-scale", "2")
    assert isinstance(made, OpenOrder)
    assert [(one.at_s, one.prompt_tokens) for one in made.load(None)] == [(0.0, 10), (pytest.approx(4.0), 18)]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--rate", "1", "-n", "4"], "-n is of closed loads, and --rate and --dataset are of open ones"),
        (["--rate", "1", "--repeats", "4"], "--repeats is of closed loads"),
        (["--rate", "-1"], "--rate -1: requests a second must be above 0"),
        (["--rate", "nan"], "--rate nan: requests a second must be above 0"),
        (["--rate", "fast"], "--rate 'fast': give requests a second such as 1,2.5,4, or sweep"),
        (["--dataset", "fixed"], "--dataset fixed has no times of its own: give --rate"),
        (["--dataset", "nowhere.jsonl"], "can't read nowhere.jsonl"),
        (["--rate", "1", "--dataset", "zipf"], "can't read zipf"),
        (["--rate", "1", "--time-scale", "2"], "--time-scale is of traces, and --dataset fixed is none"),
        (["--dataset", "t.csv", "--arrivals", "constant"], "--arrivals doesn't go with the trace t.csv"),
        (["--dataset", "t.csv", "--max-tokens", "3"], "--max-tokens doesn't go with the trace t.csv"),
        (["--rate", "1", "--requests", "5", "--duration", "5"], "--requests and --duration both say how long"),
        (["--slo-ttft", "1"], "--slo-ttft is of open loads: give --rate, or --dataset FILE"),
        (["--past-saturation"], "--past-saturation is of open loads"),
        (["--prompt-tokens", "uniform:1,5"], "--prompt-tokens uniform:1,5: without --rate all prompts are equal"),
        (["--rate", "1", "--prompt-tokens", "uniform:5,1"], "HIGH=1 is below LOW=5"),
        (["--rate", "sweep", "--past-saturation"], "--rate sweep ends at saturation"),
        (["--rate", "sweep", "--requests", "19"], "--requests 19: --rate sweep needs 20 at a rate"),
        (["--rate", "1", "--arrivals", "burst:0"], "arrivals 'burst:0'"),
    ],
)
def test_flags_that_dont_go_together_are_refused(args: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        order(*args)
    assert words in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(("flag", "value"), [("--slo-ttft", "0"), ("--duration", "inf"), ("--requests", "0")])
def test_limits_are_above_zero_and_finite(flag: str, value: str) -> None:
    with pytest.raises(click.BadParameter):
        order("--rate", "1", flag, value)


def test_a_url_may_have_a_name_and_a_path() -> None:
    assert parse_target("http://h:1") == Target("http://h:1")
    named = parse_target("ovms=http://h:1/v3")
    assert (named.name, named.openai_url) == ("ovms", "http://h:1/v3")
    assert parse_target("http://h:1/").openai_url == "http://h:1/v1"
    assert parse_target("http://h:1/?a=b").name is None


@pytest.mark.parametrize("words", ["h:1", "x=h:1", "ftp://h", "http://"])
def test_a_url_that_is_none_is_refused(words: str) -> None:
    with pytest.raises(ConfigError, match="give \\[NAME=\\]http://HOST:PORT"):
        parse_target(words)
