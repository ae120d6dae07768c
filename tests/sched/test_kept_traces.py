"""Traces that are worth keeping, replayed decision by decision; and any that the fuzz has saved and nobody has mended.

``tests/fuzzing/kept_traces.py`` says how a failing trace becomes a kept one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everystep.schedule_replay import replay_schedule
from fuzzing.kept_traces import FAILING, TRACES, play_again
from fuzzing.scenes import right_lanes

KEPT = sorted(TRACES.glob("*.jsonl"))
UNMENDED = sorted(FAILING.glob("*.jsonl"))


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("trace", KEPT, ids=name_of)
def test_the_policies_decide_as_they_did_when_the_trace_was_kept(trace: Path) -> None:
    report = replay_schedule(trace, right_lanes)
    assert report.is_equal, report
    assert report.num_tokens > 0


@pytest.mark.parametrize("trace", KEPT + UNMENDED, ids=name_of)
def test_no_promise_is_broken_on_the_trace(trace: Path, tmp_path: Path) -> None:
    play_again(trace, tmp_path / "again.jsonl")


def test_the_kept_traces_hold_what_they_are_kept_for() -> None:
    told = {trace.stem: trace.read_text() for trace in KEPT}
    assert '"preempted":["' in told["forced-preemption"]
    assert all(f'"lane":"{lane}"' in told["three-lanes-contend"] for lane in ("static", "per_token", "continuous"))
    assert '"line":"idle"' in told["waits-for-company"]
    assert '"length"' in told["outgrows-the-cache"]
    assert '"line":"refused"' in told["never-fits"]
    assert '"timeout"' in told["deadline-within-the-pass"]
