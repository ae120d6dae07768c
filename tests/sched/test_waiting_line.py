"""The line: rank by aged priority, and causes that are told once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.errors import ConfigError
from everystep.sched.line import Line
from everystep.types import Sequence, WaitCause


def names(line: Line) -> list[str]:
    return [sequence.sequence_id for sequence in line]


def test_lower_priority_numbers_go_first_and_equals_by_arrival(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    for name, priority, arrival_s in [("late", 0, 3.0), ("early", 0, 1.0), ("urgent", -1, 4.0), ("patient", 1, 0.0)]:
        line.add(seq(name, priority=priority, arrival_s=arrival_s))
    assert names(line) == ["urgent", "early", "late", "patient"]


def test_ten_seconds_of_waiting_are_worth_one_priority(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    line.add(seq("waited 9 s longer", priority=1, arrival_s=1.0))
    line.add(seq("urgent", priority=0, arrival_s=10.0))
    line.add(seq("waited 11 s longer", priority=1, arrival_s=-1.0))
    assert names(line) == ["waited 11 s longer", "urgent", "waited 9 s longer"]


@given(
    arrivals=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 100)), max_size=12),
    ageing_s=st.sampled_from([0.5, 7.0, 10.0]),
    later_s=st.integers(100, 10_000),
)
def test_the_order_is_that_of_aged_priorities_at_any_later_time(
    seq: Callable[..., Sequence], arrivals: list[tuple[int, int]], ageing_s: float, later_s: int
) -> None:
    line = Line(ageing_s)
    for index, (priority, arrival_s) in enumerate(arrivals):
        line.add(seq(str(index), priority=priority, arrival_s=arrival_s))
    aged = [sequence.priority - (later_s - sequence.arrival_s) / ageing_s for sequence in line]
    assert all(first <= second + 1e-6 for first, second in pairwise(aged))


@given(st.data())
def test_whoever_leaves_is_the_one_who_was_named_even_among_equals(
    seq: Callable[..., Sequence], data: st.DataObject
) -> None:
    line = Line(10.0)
    members = [seq(str(index), priority=index % 2) for index in range(6)]
    for member in members:
        member.arrival_index = 0  # as users do who make sequences without an engine
        line.add(member)
    while members:
        leaver = data.draw(st.sampled_from(members))
        line.remove(leaver)
        members.remove(leaver)
        assert sorted(names(line)) == sorted(member.sequence_id for member in members)


def test_who_is_put_back_stands_before_its_equals(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    first, second = seq("first"), seq("second")
    first.arrival_index = second.arrival_index = 0
    line.add(second)
    line.put_back(first)
    assert names(line) == ["first", "second"]


def test_what_the_head_lacks_makes_the_others_wait_for_the_head(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    for name in "abc":
        line.add(seq(name))
    told = [(entry.sequence.sequence_id, entry.why, entry.behind) for entry in line.why_waiting(WaitCause.NO_BLOCKS)]
    assert told == [("a", "no_blocks", None), ("b", "behind", "a"), ("c", "behind", "a")]


def test_a_running_round_keeps_out_everybody_alike(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    for name in "ab":
        line.add(seq(name))
    assert [entry.why for entry in line.why_waiting(WaitCause.ROUND_RUNNING)] == ["round_running"] * 2


def test_the_same_object_is_told_until_line_or_cause_change(seq: Callable[..., Sequence]) -> None:
    line = Line(10.0)
    line.add(seq("a"))
    told = line.why_waiting(WaitCause.NO_SEAT)
    assert line.why_waiting(WaitCause.NO_SEAT) is told
    assert line.why_waiting(WaitCause.NO_BLOCKS) is not told
    told = line.why_waiting(WaitCause.NO_SEAT)
    line.add(seq("b"))
    assert [entry.sequence.sequence_id for entry in line.why_waiting(WaitCause.NO_SEAT)] == ["a", "b"]
    assert told is not line.why_waiting(WaitCause.NO_SEAT)


@pytest.mark.parametrize("ageing_s", [0.0, -1.0, float("nan")])
def test_ageing_must_be_a_positive_time(ageing_s: float) -> None:
    with pytest.raises(ConfigError, match="ageing_s"):
        Line(ageing_s)
