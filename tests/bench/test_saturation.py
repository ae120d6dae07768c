"""Whether a server kept up, on queues whose lines can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everystep.analysis.load import Arrival
from everystep.analysis.outcome import Answer
from everystep.bench.saturation import judge, open_requests


def answers(num: int, ends_s: Callable[[int], float], gap_s: float = 1.0) -> list[Answer]:
    """One arrival every ``gap_s``; the one of number i has ended at ``ends_s(i)``."""
    return [Answer(Arrival(index * gap_s, 1, 1), (ends_s(index),), 1) for index in range(num)]


def refused(at_s: float, kind: str) -> Answer:
    return Answer(Arrival(at_s, 1, 1), (), 0, f"{kind}: no")


def test_a_server_that_needs_a_quarter_more_than_comes_is_saturated_by_a_fifth_of_the_arrivals() -> None:
    verdict = judge(answers(101, lambda index: (index + 1) * 1.25))
    assert verdict.is_saturated
    assert verdict.unserved_share == pytest.approx(0.2, abs=0.02), "1 comes and 0.8 go in a second"


def test_a_server_that_needs_half_of_the_time_keeps_up() -> None:
    verdict = judge(answers(41, lambda index: index + 0.5))
    assert (verdict.is_saturated, verdict.unserved_share) == (False, 0.0)


def test_long_answers_are_no_saturation_though_the_load_ends_long_before_the_last_answer() -> None:
    """41 requests in 40 s, each answered after 9.5 s: 0.83 a second over the whole 49.5 s, and no line grows."""
    verdict = judge(answers(41, lambda index: index + 9.5))
    assert (verdict.is_saturated, verdict.unserved_share) == (False, pytest.approx(0.0, abs=0.01))


def test_one_slow_answer_is_chance_and_no_saturation() -> None:
    verdict = judge(answers(41, lambda index: index + (9.0 if index == 31 else 0.5)))
    assert verdict.is_saturated is False, "the line is longer by 0.85 in the last quarter: less than one request"


def test_a_crowd_late_that_is_served_before_the_load_ends_is_no_saturation() -> None:
    """Eleven that came from 29 s on wait until 39.5 s: the line is long in the last quarter, and gone at the end."""
    verdict = judge(answers(41, lambda index: 39.5 if 29 <= index <= 39 else index + 0.5))
    assert verdict.unserved_share is not None
    assert verdict.unserved_share > 0.2
    assert verdict.is_saturated is False


def test_a_line_that_is_kept_short_by_refusals_is_saturated() -> None:
    served = answers(37, lambda index: index + 0.5)
    assert judge([*served, *(refused(40.0, "429") for _ in range(3))]).is_saturated, "3 of 40"
    assert not judge([*served, refused(40.0, "429")]).is_saturated, "1 of 38"


def test_requests_that_no_idle_server_would_take_say_nothing_of_the_load() -> None:
    served = answers(37, lambda index: index + 0.5)
    verdict = judge([*served, *(refused(40.0, "400") for _ in range(3))])
    assert (verdict.is_saturated, verdict.refused_share) == (False, 0.0)


@pytest.mark.parametrize("few", [answers(19, lambda index: 99.0 * index), answers(30, lambda index: 5.0, gap_s=0.0)])
def test_few_requests_or_all_at_once_tell_nothing(few: list[Answer]) -> None:
    assert judge(few).is_saturated is None


def test_open_requests_are_counted_for_as_long_as_they_overlap() -> None:
    three = answers(3, lambda index: index + 2.0)  # open in [0, 2], [1, 3], [2, 4]
    assert open_requests(three, 1.0, 3.0) == pytest.approx((1 + 2 + 1) / 2)
    assert open_requests([*three, refused(1.0, "429")], 1.0, 3.0) == pytest.approx(2.0)
