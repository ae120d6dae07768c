from random import Random
from statistics import fmean, median

import pytest

from everystep.analysis.lengths import Fixed, LogNormal, Uniform, parse_lengths
from everystep.errors import ConfigError


def draws(words, num=100_000, seed=1):
    lengths, rng = parse_lengths(words), Random(seed)
    return [lengths.draw(rng) for _ in range(num)]


@pytest.mark.parametrize(
    ("words", "law"),
    [
        ("128", Fixed(128)),
        ("fixed:128", Fixed(128)),
        ("uniform:10,200", Uniform(10, 200)),
        (" uniform: 10, 200 ", Uniform(10, 200)),
        ("lognormal:200,0.8", LogNormal(200.0, 0.8)),
        ("lognormal:200,1,2000", LogNormal(200.0, 1.0, 2000)),
    ],
)
def test_words_are_read_and_given_back_as_words_for_the_same_law(words, law):
    assert parse_lengths(words) == law
    assert parse_lengths(str(law)) == law


def test_a_fixed_length_is_always_the_same():
    assert set(draws("7", num=20)) == {7}


def test_a_uniform_length_takes_both_ends_and_nothing_beyond():
    assert set(draws("uniform:3,6", num=1000)) == {3, 4, 5, 6}


def test_half_of_the_lognormal_lengths_are_below_the_median_and_16_percent_above_median_times_e_to_the_sigma():
    lengths = draws("lognormal:1000,0.5")
    assert median(lengths) == pytest.approx(1000, rel=0.01)
    share_above = sum(length > 1648.72 for length in lengths) / len(lengths)  # 1000 × e^0.5: one sigma
    assert share_above == pytest.approx(0.1587, abs=0.005)


def test_a_cap_holds_and_the_smallest_length_is_one():
    assert max(draws("lognormal:200,1,300")) == 300
    assert min(draws("lognormal:1,3")) == 1


@pytest.mark.parametrize("words", ["9", "uniform:3,60", "lognormal:200,0.8", "lognormal:200,1,300"])
def test_the_mean_is_the_mean_of_many_draws(words):
    assert fmean(draws(words)) == pytest.approx(parse_lengths(words).mean(), rel=0.01)


def test_a_lognormal_law_without_spread_has_its_median_as_mean():
    assert parse_lengths("lognormal:200,0,300").mean() == 200


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("0", "must be from 1"),
        ("fixed:0", "must be from 1"),
        ("fixed:x", "'x' isn't a whole number"),
        ("-5", "give 128"),
        ("1.5", "give 128"),
        ("", "give 128"),
        ("uniform:5", "give 128"),
        ("uniform:9,3", "HIGH=3 is below LOW=9"),
        ("uniform:0,3", "must be from 1"),
        ("lognormal:200", "give 128"),
        ("lognormal:0.5,1", "MEDIAN=0.5 must be from 1"),
        ("lognormal:200,-1", "SIGMA=-1 must be from 0 to 10"),
        ("lognormal:200,nan", "SIGMA=nan must be from 0 to 10"),
        ("lognormal:200,wide", "SIGMA='wide' isn't a number"),
        ("lognormal:200,1,100", "MEDIAN=200 must be from 1 to 100"),
        ("zipf:3", "give 128"),
    ],
)
def test_words_that_ask_for_no_law_are_refused_with_the_value_and_the_limit(words, names):
    with pytest.raises(ConfigError) as caught:
        parse_lengths(words)
    assert names in caught.value.message
    assert repr(words) in caught.value.message
