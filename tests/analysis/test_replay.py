"""Replay: whatever was recorded is done again, and what is done otherwise is found where it begins."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.recorded_traffic import BLOCK_SIZE, BreakingRunner, Traffic, core_of, header_of, whole_runner
from everystep.analysis.replay import Playback
from everystep.analysis.replay_report import Report
from everystep.messages import Abort, Submit
from everystep.observe.schedule import Header, Idled, Planned
from everystep.observe.schedule_reader import Turn, read_schedule
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy
from everystep.schedule_replay import replay_schedule
from everystep.types import FinishReason, Sequence, StepPlan


def record_random(path: Path, seed: int, *, num_turns: int = 40, can_fail: bool = False) -> None:
    rng = random.Random(seed)
    path.unlink(missing_ok=True)
    runner = BreakingRunner(rng) if can_fail else whole_runner()
    Traffic(rng, path, runner, num_blocks=rng.randrange(10, 16)).run(num_turns)


def replay_on(path: Path, runner: FakeRunner) -> Report:
    """Replay with a runner that draws its tokens anew."""
    header, *turns = read_schedule(path)
    assert isinstance(header, Header)
    playback = Playback()
    core = core_of(header, runner, playback.now_s, playback.drain)
    return playback.play(core, [turn for turn in turns if isinstance(turn, Turn)])


def turns_of(path: Path) -> list[Turn]:
    return [item for item in read_schedule(path) if isinstance(item, Turn)]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_traffic_was_recorded_is_replayed_equal(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "recorded.jsonl"
    record_random(path, seed)
    num_steps = sum(isinstance(turn.ran, Planned) for turn in turns_of(path))
    for report in (replay_on(path, whole_runner()), replay_schedule(path)):
        assert report.is_equal, report
        assert report.num_steps == num_steps


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_failing_rows_and_passes_are_replayed_too(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "recorded.jsonl"
    record_random(path, seed, can_fail=True)
    report = replay_schedule(path)
    assert report.is_equal, report


def test_the_random_traffic_has_all_that_a_schedule_may_depend_on(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    seen: Counter[str] = Counter()
    for seed in range(6):
        record_random(path, seed, num_turns=150, can_fail=True)
        begun: set[int] = set()
        for turn in turns_of(path):
            seen["arrivals and departures during a pass"] += len(turn.during)
            seen["waits for company"] += isinstance(turn.ran, Idled)
            for line in (*turn.before, *turn.during):
                seen[type(line).__name__] += 1
            if isinstance(turn.ran, Planned) and turn.result is not None:
                seen["held"] += len(turn.ran.held)
                seen["prefix hits"] += sum(row.start > 0 and row.n not in begun for row in turn.ran.rows)
                begun |= {row.n for row in turn.ran.rows}
                seen["preempted"] += len(turn.result.preempted)  # type: ignore[union-attr]
                for end in turn.result.ends:  # type: ignore[union-attr]
                    seen[end.reason] += 1
    expected = (
        "arrivals and departures during a pass", "waits for company", "Submitted", "Aborted", "Refused", "held",
        "prefix hits", "preempted", "stop", "length", "failed",
    )  # fmt: skip
    assert [name for name in expected if seen[name] < 5] == []


# --- a schedule that is known step by step ---------------------------------------------------------
@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Two of the continuous lane: ``a`` and ``b`` share steps 0 to 2, ``b`` leaves, ``a`` runs on to step 5."""
    path, time_s = tmp_path / "plain.jsonl", iter(range(1000))
    core = core_of(
        header_of(16), FakeRunner(vocab_size=50, block_size=BLOCK_SIZE), lambda: next(time_s), lambda: None, path
    )
    for name in ("a", "b"):
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        core.submit(Submit(name, name, "continuous", (1, 2, 3), params, 0, (), 0, 0.0))
    for _ in range(3):
        core.step()
    core.abort(Abort("b", FinishReason.ABORTED))
    while core.has_work():
        core.step()
    core.close()
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def replay_plain(path: Path) -> Report:
    return replay_on(path, FakeRunner(vocab_size=50, block_size=BLOCK_SIZE))


def test_the_plain_schedule_is_six_steps_and_nine_tokens(plain: Path) -> None:
    report = replay_plain(plain)
    assert (report.is_equal, report.num_steps, report.num_tokens) == (True, 6, 9)
    assert str(report) == "6 steps and 9 tokens are the same"


def test_another_token_is_found_in_its_step_with_the_steps_before_it(plain: Path) -> None:
    lines = lines_of(plain)
    step_4 = [line for line in lines if line["line"] == "step"][4]
    was = step_4["tokens"][0][1]
    step_4["tokens"][0][1] = (was + 1) % 50
    rewrite(plain, lines)
    difference = replay_plain(plain).difference
    assert difference is not None
    assert (difference.step, difference.what) == (4, "tokens of step 4")
    assert (difference.expected, difference.actual) == (f"a: {(was + 1) % 50}", f"a: {was}")
    assert [words.split(",")[0] for words in difference.steps_before] == ["step 1", "step 2", "step 3"]


def test_a_row_in_another_seat_is_found_and_only_it_is_shown(plain: Path) -> None:
    lines = lines_of(plain)
    plan_2 = [line for line in lines if line["line"] == "plan"][2]
    plan_2["rows"][1][1] = 7
    rewrite(plain, lines)
    difference = replay_plain(plain).difference
    assert difference is not None
    assert difference.what == "rows of step 2"
    assert difference.expected == "seat 7: b, 1 from 4 (and 1 that agree)"
    assert difference.actual == "seat 1: b, 1 from 4 (and 1 that agree)"


def test_a_departure_that_is_left_out_is_found_in_the_first_step_that_it_changed(plain: Path) -> None:
    rewrite(plain, [line for line in lines_of(plain) if line["line"] != "abort"])
    difference = replay_plain(plain).difference
    assert difference is not None
    assert difference.what == "rows of step 3"
    assert difference.expected == "nothing (and 1 that agree)"
    assert difference.actual == "seat 1: b, 1 from 5 (and 1 that agree)"


def test_a_departure_that_comes_a_pass_too_early_is_found_in_that_pass(plain: Path) -> None:
    lines = lines_of(plain)
    abort = next(i for i, line in enumerate(lines) if line["line"] == "abort")
    lines[abort - 1], lines[abort] = lines[abort], lines[abort - 1]  # within the pass of step 2
    rewrite(plain, lines)
    difference = replay_plain(plain).difference
    assert difference is not None
    assert difference.what == "tokens of step 2"
    assert difference.inputs_before[-1].endswith("b is ended: aborted")


def test_a_departure_of_one_who_is_there_though_the_recording_says_he_wasnt_is_told(plain: Path) -> None:
    lines = lines_of(plain)
    next(line for line in lines if line["line"] == "abort")["was_there"] = False
    rewrite(plain, lines)
    difference = replay_plain(plain).difference
    assert difference is not None
    assert (difference.expected, difference.actual) == ("nothing", "b aborted")


def test_a_recording_that_ends_within_a_pass_is_equal_as_far_as_it_goes(plain: Path) -> None:
    lines = lines_of(plain)
    while lines[-1] != [line for line in lines if line["line"] == "plan"][4]:
        lines.pop()
    rewrite(plain, lines)
    report = replay_plain(plain)
    assert (report.is_equal, report.num_steps, report.num_tokens) == (True, 5, 7)
    assert report.notes == ("the recording ends within the pass of step 4: its process ended there",)


# --- a policy's bug --------------------------------------------------------------------------------
class Forgetful(ContinuousPolicy):
    """Fails when a third step is planned."""

    num_plans = 0

    def plan(self, now_s: float) -> StepPlan:
        self.num_plans += 1
        if self.num_plans == 3:
            raise KeyError("the seat of b")
        return super().plan(now_s)


class Greedy(ContinuousPolicy):
    """Lets nobody in behind another: not what was recorded."""

    def add(self, sequence: Sequence) -> None:
        if not self.has_work():
            super().add(sequence)


def forgetful(settings: object, pool: BlockPool, header: Header) -> dict[str, Any]:
    return {"continuous": Forgetful(4, 8, pool=pool)}


def test_a_core_that_failed_fails_again_and_a_policy_that_is_mended_differs_there(tmp_path: Path) -> None:
    path, time_s = tmp_path / "broken.jsonl", iter(range(100))
    core = core_of(header_of(16), FakeRunner(block_size=BLOCK_SIZE), lambda: next(time_s), lambda: None, path)
    core.lanes["continuous"] = core._turns.lanes["continuous"] = Forgetful(4, 8, pool=core.pool)
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    core.submit(Submit("a", "a", "continuous", (1, 2, 3), params, 0, (), 0, 0.0))
    core.step()
    core.step()
    with pytest.raises(KeyError):
        core.step()
    again = replay_schedule(path, make_lanes=forgetful)
    assert again.is_equal
    assert again.notes == ("the recorded core failed here, and so did this one: KeyError: 'the seat of b'",)
    mended = replay_schedule(path).difference
    assert mended is not None
    assert (mended.expected, mended.actual) == ("KeyError: 'the seat of b'", "none")


def test_another_policy_is_replayed_against_the_recorded_one(plain: Path) -> None:
    report = replay_schedule(plain, make_lanes=lambda settings, pool, header: {"continuous": Greedy(4, 8, pool=pool)})
    assert report.difference is not None
    assert report.difference.what == "rows of step 0"
