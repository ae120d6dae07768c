"""The trace: valid Chrome trace-event JSON in which lanes, seats and rows stand where the log has them."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from everystep.observe.step_log import StepLog
from observe.made_steps import output, row, waiting

Event = dict[str, Any]
# What the format's description asks of each kind of event.
NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "args"},
}


@pytest.fixture(scope="module")
def log() -> StepLog:
    log = StepLog()
    log.append(
        output(
            0,
            policy="static",
            rows=[row(0, "a", phase="prefill", new=5), row(1, "b")],
            line=[waiting("c"), waiting("d")],
        )
    )
    log.append(output(1, policy="continuous", rows=[row(0, "x")], line=[waiting("y", "no_blocks")]))
    log.append(
        output(2, policy="static", rows=[row(0, "a", finish="stop"), row(1, "b", phase="held", new=0)], line=None)
    )
    for step in range(3, 20):
        log.append(output(step, policy="continuous", rows=[row(step % 3, "x")], line=[]))
    return log


@pytest.fixture(scope="module")
def events(log: StepLog) -> list[Event]:
    trace = json.loads(b"".join(log.trace()))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = trace["traceEvents"]
    return events


def slices(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def names(events: list[Event], kind: str) -> dict[tuple[int, int | None], str]:
    return {(one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["name"] == kind}


def test_each_event_has_what_the_format_asks_of_its_kind(events: list[Event]) -> None:
    for event in events:
        assert NEEDED[event["ph"]] <= event.keys()
        assert all(isinstance(event[key], int) for key in ("pid", "tid") if key in event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())


def test_each_lane_is_a_named_process_and_each_seat_a_named_thread(events: list[Event]) -> None:
    processes = {pid: name for (pid, _), name in names(events, "process_name").items()}
    threads = names(events, "thread_name")
    assert sorted(processes.values()) == ["continuous", "everystep", "static"]
    by_lane = defaultdict(set)
    for (pid, _), name in threads.items():
        by_lane[processes[pid]].add(name)
    assert by_lane == {"static": {"steps", "seat 0", "seat 1"}, "continuous": {"steps", "seat 0", "seat 1", "seat 2"}}
    for event in (one for one in events if one["ph"] == "X"):
        assert (event["pid"], event["tid"]) in threads


def test_thread_ids_are_unique_over_all_processes(events: list[Event]) -> None:
    tids = [tid for _, tid in names(events, "thread_name")]
    assert len(set(tids)) == len(tids)


def test_each_row_is_a_slice_as_long_as_its_step(events: list[Event]) -> None:
    [held] = slices(events, "held")
    assert (held["name"], held["args"]["step"], held["args"]["new_tokens"]) == ("b", 2, 0)
    assert held["ts"] == pytest.approx(0.2e6)
    assert held["dur"] == pytest.approx(0.04e6)
    [reading] = slices(events, "prefill")
    assert (reading["name"], reading["args"]["new_tokens"], reading["args"]["request_id"]) == ("a", 5, "request of a")
    assert [one["args"]["finish"] for one in slices(events, "decode") if one["name"] == "a"] == ["stop"]


def test_slices_of_a_thread_do_not_overlap(events: list[Event]) -> None:
    ends: dict[int, float] = {}
    for event in (one for one in events if one["ph"] == "X"):
        assert event["ts"] >= ends.get(event["tid"], 0.0)
        ends[event["tid"]] = event["ts"] + event["dur"]


def test_counters_show_who_waits_by_cause_and_the_blocks(events: list[Event]) -> None:
    lines = [event["args"] for event in events if event["name"] == "waiting"]
    assert (lines[0]["no_seat"], lines[1]["no_blocks"], lines[2]["no_seat"], lines[3]["no_blocks"]) == (2, 1, 2, 0)
    assert all(line.keys() == lines[0].keys() for line in lines)
    blocks = [event["args"] for event in events if event["name"] == "blocks"]
    assert len(blocks) == 20
    assert blocks[0] == {"used": 12, "free": 2036}


def test_it_is_made_a_piece_a_step(log: StepLog) -> None:
    assert len(list(log.trace())) == 20 + 3


def test_an_empty_log_is_a_valid_trace() -> None:
    assert [event["ph"] for event in json.loads(b"".join(StepLog().trace()))["traceEvents"]] == ["M"]
