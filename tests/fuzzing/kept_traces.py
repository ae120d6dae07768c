"""A saved trace played again: its arrivals, departures and times, with the policies as they are now, under all checks.

Owns what a trace's inputs are.  What it says of decisions is ignored here: those are the present policies' own.

A trace that the fuzz saved in ``tests/sched/traces/failing/`` holds what the faulty policy did, and fails as a test
until the policy is mended.  Then ``python tests/fuzzing/kept_traces.py FILE`` plays it under all checks, records what
the mended policy does in ``tests/sched/traces/``, and deletes the old one: it is replayed from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]

from everystep.observe.schedule import Aborted, Header, Submitted
from everystep.observe.schedule_reader import Input, Turn, read_schedule
from fuzzing.scenes import MakeLanes, Scene, right_lanes
from fuzzing.stage import PROBE, Stage

TRACES = Path(__file__).parents[1] / "sched" / "traces"
FAILING = TRACES / "failing"


def play_again(trace: Path, record: Path, make_lanes: MakeLanes = right_lanes) -> Stage:
    """Play the trace's inputs to the end.  Raises ``AssertionError`` where a promise is broken.

    ``record`` is written anew, as far as it goes.
    """
    items = read_schedule(trace)
    header = next(items)
    assert isinstance(header, Header)
    stage = Stage(Scene.of(header), record, record.with_suffix(".failed"), make_lanes)
    for turn in items:
        assert isinstance(turn, Turn), "a trace has one core"
        if not _play_turn(stage, turn):
            break
    stage.finish()
    stage.close()
    return stage


def keep(trace: Path, folder: Path = TRACES) -> Path:
    """The trace as the policies of now play it, to be replayed from now on."""
    kept = folder / trace.name
    play_again(trace, kept)
    kept.chmod(0o644)
    return kept


def _play_turn(stage: Stage, turn: Turn) -> bool:
    """False where the end of the recorded play begins: this one brings its own."""
    for line in turn.before:
        if isinstance(line, Submitted) and line.sequence_id.startswith(PROBE):
            return False
        _give(stage, line)
    if turn.ran is None:
        return False
    stage.now_s = turn.ran.now_s
    stage.during += [_giving(stage, line) for line in turn.during]
    if stage.step() is None:  # nothing runs here now; it did when this was recorded
        stage.happen_now()
    return True


def _giving(stage: Stage, line: Input) -> Callable[[], None]:
    return lambda: _give(stage, line)


def _give(stage: Stage, line: Input) -> None:
    if isinstance(line, Submitted):
        stage.now_s = max(stage.now_s, line.at_s)
        stage.take(line.message())
    elif isinstance(line, Aborted):
        stage.now_s = max(stage.now_s, line.at_s)
        stage.abort(line.sequence_id, line.reason)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(keep(Path(argument)))
        Path(argument).unlink()
