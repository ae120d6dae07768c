"""Steps that several read at about the same time are read from the log once, and are always the log's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.observe.shared_steps import MAX_KEPT, SharedSteps
from everystep.observe.step_log import StepLog
from observe.made_steps import output, row, waiting


class CountingLog(StepLog):
    """Counts the steps that are read from it."""

    num_read = 0

    def steps(self, since: int = -1) -> Iterator[Any]:
        for step in super().steps(since):
            self.num_read += 1
            yield step


def add(log: StepLog, *numbers: int, who: str = "a") -> None:
    for number in numbers:
        log.append(output(number, rows=[row(0, f"{who}{number}")], line=[waiting("w", "no_seat", -0.5)]))


def told(shared: SharedSteps, since: int, limit: int = 16) -> list[Any]:
    found = list(shared.after(since, limit))
    assert [number for number, _ in found] == [json.loads(data)["step"] for _, data in found]
    return [json.loads(data) for _, data in found]


def test_five_readers_that_follow_live_cost_one_reading_a_step() -> None:
    log = CountingLog()
    shared = SharedSteps(log)
    for number in range(100):
        add(log, number)
        for _ in range(5):
            assert told(shared, number - 1) == log.since(number - 1, 1)["steps"]
    assert log.num_read - 5 * 100 == 100, "beyond what this test itself read"


def test_what_is_told_is_what_the_log_has_even_where_the_numbering_began_anew() -> None:
    log = StepLog()
    shared = SharedSteps(log)
    add(log, *range(5))
    told(shared, -1)
    add(log, *range(5), who="b")
    assert [step["rows"][0]["sequence_id"] for step in told(shared, -1)] == [f"b{n}" for n in range(5)]


def test_who_reads_the_past_puts_nothing_in_the_way_of_who_reads_live() -> None:
    log = CountingLog()
    shared = SharedSteps(log)
    add(log, *range(200))
    told(shared, 195)
    told(shared, -1, limit=150)
    before = log.num_read
    assert [step["step"] for step in told(shared, 195)] == [196, 197, 198, 199]
    assert log.num_read == before


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 140), st.integers(1, 40)), max_size=12))
def test_any_readers_get_what_the_log_gives(turns: list[tuple[int, int, int]]) -> None:
    log = StepLog(30)
    shared = SharedSteps(log)
    for num_steps, since, limit in turns:
        add(log, *range(log.last_step + 1, log.last_step + 1 + num_steps))
        since = max(since, (log.first_step or 0) - 1)  # as a live reader does: what is lost is lost
        assert told(shared, since, limit) == [step for step in log.since(since, 1000)["steps"]][:limit]


def test_a_reader_that_takes_its_time_is_not_ahead_of_the_log_and_little_is_kept() -> None:
    log = StepLog()
    shared = SharedSteps(log)
    add(log, *range(3))
    slow = shared.after(-1, 1000)
    assert [number for number, _ in islice(slow, 2)] == [0, 1]
    add(log, *range(3, 500))
    for since in range(-1, 499):
        next(shared.after(since, 1))
    assert next(slow)[0] == 2
    kept = [data for held in vars(shared).values() if isinstance(held, dict) for data in held]
    assert len(kept) <= MAX_KEPT


@pytest.mark.parametrize("since", [-1, 5])
def test_of_an_empty_log_or_from_its_end_there_is_nothing(since: int) -> None:
    log = StepLog()
    assert told(SharedSteps(log), since) == []
    add(log, *range(6))
    assert told(SharedSteps(log), 5) == []
