"""The fuzz finds each fault that is put into a policy, and what it saves is a test from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from everystep.schedule_replay import replay_schedule
from fuzzing.kept_traces import keep, play_again
from fuzzing.mutants import MUTANTS
from fuzzing.scenes import SCENES
from fuzzing.traffic import Play, explore, roam

SEEDS = range(35, 335)  # each fault is found in the first dozen


def play_of(fault: str, folder: Path) -> Play:
    scene, make_lanes, _ = MUTANTS[fault]
    return Play(SCENES[scene], folder, folder / "failing" / "trace.jsonl", make_lanes)


def check_that_the_trace_is_a_test(fault: str, saved: Path, folder: Path) -> None:
    """It fails with the faulty policy, passes with the right one, and tells the two apart when it is replayed."""
    _, make_lanes, words = MUTANTS[fault]
    with pytest.raises(AssertionError, match=words):
        play_again(saved, folder / "again.jsonl", make_lanes)
    kept = keep(saved, folder)
    report = replay_schedule(kept)
    assert report.is_equal, report
    assert report.num_steps > 0
    assert not replay_schedule(kept, make_lanes).is_equal


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_fault_is_found_and_its_trace_saved_and_the_right_policy_passes_where_it_fails(
    fault: str, tmp_path: Path
) -> None:
    play = play_of(fault, tmp_path)
    with pytest.raises(AssertionError, match=MUTANTS[fault][2]) as caught:
        roam(play, SEEDS)
    assert any(str(play.keep_as) in note for note in caught.value.__notes__)
    check_that_the_trace_is_a_test(fault, play.keep_as, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["a token is lost", "a block is leaked"])
def test_what_hypothesis_finds_is_saved_as_it_was_shrunk(fault: str, tmp_path: Path) -> None:
    play = play_of(fault, tmp_path)
    with pytest.raises(AssertionError, match=MUTANTS[fault][2]):
        explore(play, 300)
    shrunk = play.keep_as.read_text()
    assert shrunk.count('"line":"submit"') <= 2, shrunk  # one who is wronged, and at most one beside it
    check_that_the_trace_is_a_test(fault, play.keep_as, tmp_path)
