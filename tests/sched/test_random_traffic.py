"""Every lane under random arrivals, departures, deadlines, failures, clock jumps and scarce blocks.

The stage checks each step: seats, budgets, rounds, owners of every block, no row writing what another reads, tokens,
ends, order, and the bound on waiting.  ``test_fuzz_can_fail.py`` shows that it can fail.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everystep.sched import ContinuousPolicy
from fuzzing.kept_traces import FAILING
from fuzzing.mutants import ForgetsARow, making, without_ageing
from fuzzing.scenes import MAX_PRIORITY, SCENES, MakeLanes, right_lanes
from fuzzing.stage import Stage
from fuzzing.traffic import Play, explore, roam

scenes = pytest.mark.parametrize("scene", SCENES)


def play_of(scene: str, folder: Path) -> Play:
    return Play(SCENES[scene], folder, FAILING / f"{scene}.jsonl")


@scenes
def test_no_promise_is_broken_in_whatever_order_things_happen(scene: str, tmp_path: Path) -> None:
    assert roam(play_of(scene, tmp_path), range(25)) > 500


@scenes
def test_hypothesis_finds_no_broken_promise_either(scene: str, tmp_path: Path) -> None:
    explore(play_of(scene, tmp_path), 8)


@pytest.mark.slow
@pytest.mark.timeout(600)
@scenes
def test_no_promise_is_broken_in_hundreds_of_traces(scene: str, tmp_path: Path) -> None:
    assert roam(play_of(scene, tmp_path), range(1000, 1400)) > 10_000


@pytest.mark.slow
@pytest.mark.timeout(600)
@scenes
def test_hypothesis_searches_longer_and_finds_none(scene: str, tmp_path: Path) -> None:
    explore(play_of(scene, tmp_path), 60)


def impatient_stream(
    lane: str,
    folder: Path,
    make_lanes: MakeLanes = right_lanes,
    *,
    first_pause_s: float = 1.0,
    is_order_checked: bool = True,
    is_seated_first: bool = False,
) -> Stage:
    """One of the worst priority comes first; of the best there are always more than a lane has seats."""
    stage = Stage(replace(SCENES[lane], num_blocks=10), folder / "played", folder / "failed", make_lanes)
    if not is_order_checked:
        stage.promises.check_order = lambda lane, plan: None  # type: ignore[method-assign]
    stage.submit("patient", lane, (1, 2, 3), max_tokens=6, ignore_eos=True, priority=MAX_PRIORITY)
    if is_seated_first:
        stage.step()
    for i in range(1000):
        for j in range(6 - len(stage.alive)):
            stage.submit(f"{i} {j}", lane, (i % 50, j, 3), max_tokens=6, ignore_eos=True)
        stage.step()
        stage.now_s += first_pause_s if i == 0 else 1.0
        if "patient" not in stage.alive:
            break
    return stage


lanes = pytest.mark.parametrize("lane", ["static", "per_token", "continuous"])


@lanes
def test_the_worst_priority_ends_within_the_bound_though_better_ones_keep_coming(lane: str, tmp_path: Path) -> None:
    stage = impatient_stream(lane, tmp_path)
    assert stage.promised["patient"].end == "length"
    # Twenty seconds, so twenty steps, go by until nobody new can overtake it; what is before it then takes longer.
    assert stage.num_steps > 20


@lanes
def test_without_ageing_later_ones_overtake_it(lane: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="sat down before it; its priority is worth 20 s"):
        impatient_stream(lane, tmp_path, without_ageing)


@pytest.mark.parametrize("lane", ["per_token", "continuous"])
def test_without_ageing_it_waits_for_more_steps_than_the_bound(lane: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="patient hasn't ended"):
        impatient_stream(lane, tmp_path, without_ageing, first_pause_s=21.0, is_order_checked=False)


def test_a_row_that_is_seated_and_never_computed_breaks_the_bound_as_well(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="hasn't ended"):
        impatient_stream(
            "continuous", tmp_path, making("continuous", ForgetsARow), first_pause_s=21.0, is_seated_first=True
        )


def first_start_s(ageing_s: float, seq: Any, bench: Any) -> float | None:
    """When one of priority 5 gets the only seat while one of priority 0 arrives each second, for 200 s."""
    stage = bench(ContinuousPolicy(1, 8, ageing_s=ageing_s))
    stage.add(seq("patient", 3, max_tokens=1, priority=5, arrival_s=0.0), seq("0 s", 3, max_tokens=1))
    for second in range(1, 200):
        stage.add(seq(f"{second} s", 3, max_tokens=1, arrival_s=float(second)))
        stage.now_s = float(second)
        if stage.step().rows[0].sequence.sequence_id == "patient":
            return stage.now_s
    return None


def test_waiting_is_bounded_by_ageing_times_the_difference_of_priorities(seq: Any, bench: Any) -> None:
    # At 50 s the patient one ranks with those that come now; the line then holds one, served in a second.
    started_s = first_start_s(10.0, seq, bench)
    assert started_s is not None
    assert 45.0 <= started_s <= 52.0


def test_with_hardly_any_ageing_the_same_sequence_would_starve(seq: Any, bench: Any) -> None:
    assert first_start_s(1e9, seq, bench) is None
