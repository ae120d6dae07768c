"""What the last seconds were like, held against counts by hand, and against all that was told, kept and sorted."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.observe.observer import Observer
from everystep.observe.recent import MAX_WINDOW_S, Recent
from everystep.types import FinishReason
from observe.made_steps import output, row, submit

WITHIN = 0.025  # what the module promises
NOTHING = {
    "tokens_per_s": 0.0, "requests_per_s": 0.0, "steps_per_s": 0.0, "ttft_s": None, "itl_s": None, "step_s": None,
    "seat_steps": {"working": 0, "held": 0, "empty": 0},
}  # fmt: skip


def recent(*policies: str) -> Recent:
    return Recent(policies or ("continuous",))


def near(seconds: float) -> Any:
    return pytest.approx(seconds, rel=WITHIN)


def test_rates_are_per_second_of_the_window_and_the_running_second_is_left_out() -> None:
    told = recent()
    for at_s in (10.0, 10.5, 11.0, 11.9, 11.99):
        told.next_token("continuous", at_s, 0.1)
    told.ended("continuous", 11.99)
    told.next_token("continuous", 12.0, 0.1)
    told.ended("continuous", 12.3)
    figures = told.figures("continuous", 12.4, 4)  # seconds 8, 9, 10 and 11
    assert figures["tokens_per_s"] == 5 / 4
    assert figures["requests_per_s"] == 1 / 4
    assert told.figures("continuous", 12.4, 1)["tokens_per_s"] == 3  # second 11
    assert told.figures("continuous", 13.0, 1)["tokens_per_s"] == 1  # second 12, now that it is over


def test_a_server_younger_than_the_window_is_counted_by_the_seconds_it_has_lived() -> None:
    told = recent()
    for at_s in (0.2, 1.1, 1.2, 2.9):
        told.next_token("continuous", at_s, 0.1)
    assert told.figures("continuous", 0.9, 10) == NOTHING
    assert told.figures("continuous", 3.1, 10)["tokens_per_s"] == round(4 / 3, 3)
    assert told.figures("continuous", 20.0, 60)["tokens_per_s"] == 4 / 20


def test_quantiles_are_the_nearest_rank() -> None:
    told = recent()
    for n in range(20):
        told.first_token("continuous", 5.0, 0.1 * (n + 1))  # 0.1 to 2.0; by rank: the 10th, the 19th, the 20th
    told.next_token("continuous", 5.5, 0.04)
    figures = told.figures("continuous", 6.0, 10)
    assert figures["ttft_s"] == {"p50": near(1.0), "p95": near(1.9), "p99": near(2.0)}
    assert figures["itl_s"] == dict.fromkeys(("p50", "p95", "p99"), near(0.04))
    assert figures["tokens_per_s"] == 21 / 6


@settings(deadline=None)
@given(st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=120))
def test_a_quantile_is_within_its_promised_error_of_that_of_all_that_was_told(durations: list[float]) -> None:
    told = recent()
    for seconds in durations:
        told.next_token("continuous", 3.3, seconds)
    ranked = sorted(durations)
    exact = {f"p{percent}": ranked[math.ceil(len(ranked) * percent / 100) - 1] for percent in (50, 95, 99)}
    shown = told.figures("continuous", 4.0, 10)["itl_s"]
    assert shown == {name: near(seconds) for name, seconds in exact.items()}


@pytest.mark.parametrize(("seconds", "shown_s"), [(0.0, 1e-5), (-1e-9, 1e-5), (1e-7, 1e-5), (1e9, 40 * 3600)])
def test_what_is_beyond_the_bins_is_told_as_their_end(seconds: float, shown_s: float) -> None:
    told = recent()
    told.next_token("continuous", 1.0, seconds)
    assert told.figures("continuous", 2.0, 10)["itl_s"]["p50"] == near(shown_s)


def test_steps_tell_how_long_they_took_and_who_sat_where() -> None:
    told = recent("static", "continuous")
    for number, (step_s, held) in enumerate([(0.02, 0), (0.02, 1), (0.3, 2)]):
        rows = [row(seat, f"s{seat}", phase="held" if seat < held else "decode") for seat in range(3)]
        told.step(output(number, policy="static", rows=rows, start_s=4.0 + number / 10, step_s=step_s).summary)
    figures = told.figures("static", 5.0, 2)
    assert figures["steps_per_s"] == 3 / 2
    assert figures["step_s"] == {"p50": near(0.02), "p95": near(0.3), "p99": near(0.3)}
    assert figures["seat_steps"] == {"working": 3 + 2 + 1, "held": 0 + 1 + 2, "empty": 3}  # of four seats, three taken
    assert told.figures("continuous", 5.0, 2) == NOTHING, "another lane's"


def test_an_idle_server_comes_to_nothing_however_time_goes_on() -> None:
    told = recent()
    for at_s in (7.0, 8.0):
        told.next_token("continuous", at_s, 0.1)
    assert told.figures("continuous", 67.9, 60)["tokens_per_s"] == round(2 / 60, 3)
    assert told.figures("continuous", 68.0, 60)["tokens_per_s"] == round(1 / 60, 3)
    assert told.figures("continuous", 69.0, 60) == NOTHING
    assert told.figures("continuous", 1e7, 60) == NOTHING
    told.next_token("continuous", 1e7 + 1, 0.1)
    assert told.figures("continuous", 1e7 + 2.5, 1)["tokens_per_s"] == 1


@pytest.mark.parametrize("window_s", [1, 2, 59, MAX_WINDOW_S])
def test_a_token_a_second_is_one_a_second_at_every_moment(window_s: int) -> None:
    told = recent()
    for second in range(3 * MAX_WINDOW_S):
        told.next_token("continuous", second + 0.5, 0.1)
        assert told.figures("continuous", second + 0.6, window_s)["tokens_per_s"] == (1 if second else 0)
        assert told.figures("continuous", second + 1.0, window_s)["tokens_per_s"] == 1


def test_a_lane_that_nothing_was_ever_told_of_has_figures() -> None:
    assert recent().figures("continuous", 0.0, 1) == recent().figures("continuous", 1e6, 60) == NOTHING


def test_a_step_that_comes_a_little_late_counts_as_of_now() -> None:
    told = recent()
    told.next_token("continuous", 6.01, 0.1)
    told.step(output(0, rows=[row(0, "a")], start_s=5.9, step_s=0.09).summary)
    assert told.figures("continuous", 6.5, 10)["steps_per_s"] == 0
    assert told.figures("continuous", 7.0, 10)["steps_per_s"] == round(1 / 7, 3)


@dataclass
class Event:
    """What is told, ``pause_s`` after what was told before."""

    pause_s: float
    kind: str
    seconds: float


EVENTS = st.builds(
    Event, st.sampled_from([0.0, 0.1, 0.9, 1.0, 7.3, 61.0, 400.0]),
    st.sampled_from(["first", "next", "ended"]), st.floats(1e-4, 60),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=60), st.integers(1, MAX_WINDOW_S), st.sampled_from([0.0, 0.5, 1.0, 20.0, 59.0, 100.0]))
def test_any_window_counts_what_a_list_of_all_events_counts(events: list[Event], window_s: int, pause_s: float) -> None:
    told, all_told, now_s = recent(), [], 0.0
    for event in events:
        now_s += event.pause_s
        all_told.append((int(now_s), event))
        if event.kind == "ended":
            told.ended("continuous", now_s)
        elif event.kind == "first":
            told.first_token("continuous", now_s, event.seconds)
        else:
            told.next_token("continuous", now_s, event.seconds)
    end = int(now_s + pause_s)
    counted = [event.kind for second, event in all_told if end - window_s <= second < end]
    span_s = max(1, min(window_s, end))
    figures = told.figures("continuous", now_s + pause_s, window_s)
    assert figures["tokens_per_s"] == round((counted.count("first") + counted.count("next")) / span_s, 3)
    assert figures["requests_per_s"] == round(counted.count("ended") / span_s, 3)
    assert (figures["ttft_s"] is None) == ("first" not in counted)
    assert (figures["itl_s"] is None) == ("next" not in counted)


def test_memory_stops_growing_after_the_longest_window() -> None:
    told = recent()

    def grown_bytes(seconds: range) -> int:
        before = tracemalloc.get_traced_memory()[0]
        for second in seconds:
            told.next_token("continuous", second + 0.5, 0.001 * (second + 1))
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        first = grown_bytes(range(2 * MAX_WINDOW_S))
        later = grown_bytes(range(2 * MAX_WINDOW_S, 30 * MAX_WINDOW_S))
    finally:
        tracemalloc.stop()
    assert first > 10_000, "the seconds are kept"
    assert later < first / 20


def test_the_observer_tells_ttft_from_the_arrival_and_itl_between_tokens_and_every_end() -> None:
    observer = Observer(policies=("static", "continuous"))
    observer.accepted(submit("a", arrival_s=10.0))
    observer.accepted(submit("b", arrival_s=10.0))
    for at_s in (10.5, 10.7, 10.9):
        observer.token("a", at_s)
    observer.token("nobody's", 10.9)
    observer.finished("a", FinishReason.LENGTH, 10.9)
    observer.finished("b", FinishReason.ABORTED, 10.95)
    observer.finished("b", FinishReason.ABORTED, 10.96)
    figures = observer.recent.figures("continuous", 11.0, 1)
    assert figures["tokens_per_s"] == 3
    assert figures["requests_per_s"] == 2
    assert figures["ttft_s"]["p99"] == near(0.5)
    assert figures["itl_s"]["p50"] == near(0.2)
    assert observer.recent.figures("static", 11.0, 1) == NOTHING


def test_a_worker_that_numbers_its_steps_anew_is_counted_on() -> None:
    observer = Observer(policies=("continuous",))
    for number, at_s in [(0, 20.1), (1, 20.2), (0, 20.8)]:
        observer.step(output(number, rows=[row(0, "a")], start_s=at_s, step_s=0.05))
    assert observer.recent.figures("continuous", 21.0, 1)["steps_per_s"] == 3
