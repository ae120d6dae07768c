from itertools import pairwise
from random import Random
from statistics import fmean, stdev

import pytest

from everystep.analysis.arrivals import burst, constant, parse_arrivals, poisson
from everystep.analysis.lengths import parse_lengths
from everystep.errors import ConfigError

PROMPT, OUTPUT = parse_lengths("uniform:1,1000"), parse_lengths("lognormal:20,1")


def gaps(load):
    return [later.at_s - earlier.at_s for earlier, later in pairwise(load)]


def test_poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential_law():
    load = poisson(4.0, 20_000, PROMPT, OUTPUT, Random(3))
    assert fmean(gaps(load)) == pytest.approx(0.25, rel=0.03)
    assert stdev(gaps(load)) == pytest.approx(0.25, rel=0.03)
    over_twice_the_mean = sum(gap > 0.5 for gap in gaps(load)) / len(load)
    assert over_twice_the_mean == pytest.approx(0.1353, abs=0.01)  # e^-2


def test_constant_arrivals_start_at_zero_with_equal_gaps():
    load = constant(4.0, 5, PROMPT, OUTPUT, Random(0))
    assert [arrival.at_s for arrival in load] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_bursts_come_together_at_the_same_mean_rate():
    load = burst(4.0, 20_001, PROMPT, OUTPUT, Random(5), size=8)
    times = [arrival.at_s for arrival in load]
    groups = [times[first : first + 8] for first in range(0, len(times), 8)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len({group[0] for group in groups}) == len(groups) == 2501
    assert len(groups[-1]) == 1
    assert len(load) / times[-1] == pytest.approx(4.0, rel=0.06)


@pytest.mark.parametrize("process", [poisson, constant, parse_arrivals("burst:3")])
def test_the_same_seed_at_twice_the_rate_is_the_same_load_in_half_the_time(process):
    slow = process(2.0, 50, PROMPT, OUTPUT, Random(7))
    quick = process(4.0, 50, PROMPT, OUTPUT, Random(7))
    assert [arrival.at_s for arrival in quick] == pytest.approx([arrival.at_s / 2 for arrival in slow])
    assert [(a.prompt_tokens, a.output_tokens) for a in quick] == [(a.prompt_tokens, a.output_tokens) for a in slow]


@pytest.mark.parametrize("process", [poisson, constant, parse_arrivals("burst:3")])
def test_a_longer_load_begins_with_the_shorter_one_and_another_seed_is_another_load(process):
    assert process(2.0, 50, PROMPT, OUTPUT, Random(7))[:20] == process(2.0, 20, PROMPT, OUTPUT, Random(7))
    assert process(2.0, 20, PROMPT, OUTPUT, Random(7)) != process(2.0, 20, PROMPT, OUTPUT, Random(8))


@pytest.mark.parametrize("words", ["", "Poisson", "burst", "burst:", "burst:0", "burst:x", "poisson:2", "constant:1"])
def test_unknown_arrivals_are_refused_by_name(words):
    with pytest.raises(ConfigError, match=r"give poisson, constant or burst:SIZE") as caught:
        parse_arrivals(words)
    assert repr(words) in caught.value.message


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_no_rate_is_refused(rate):
    with pytest.raises(ConfigError, match="must be above 0"):
        poisson(rate, 5, PROMPT, OUTPUT, Random(0))


def test_no_requests_and_empty_bursts_are_refused():
    with pytest.raises(ConfigError, match="0 requests"):
        constant(1.0, 0, PROMPT, OUTPUT, Random(0))
    with pytest.raises(ConfigError, match="size=0"):
        burst(1.0, 5, PROMPT, OUTPUT, Random(0), size=0)
