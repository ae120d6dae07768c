"""Makes the traces that are kept for what they show: ``python tests/fuzzing/make_traces.py``.

Owns their stories.  Traces that the fuzz found come by ``kept_traces.py`` instead.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]

from everystep.types import FinishReason
from fuzzing.kept_traces import TRACES
from fuzzing.scenes import SCENES
from fuzzing.stage import Stage


def steps(stage: Stage, num_steps: int) -> None:
    for _ in range(num_steps):
        stage.step()
        stage.now_s += 0.1


def forced_preemption(stage: Stage) -> None:
    """Four grow on a pool that holds two of them; the lowest-ranked pays, twice."""
    for i in range(4):
        stage.submit(f"grows {i}", "continuous", (7, i, i), max_tokens=12, ignore_eos=True, priority=i % 2)
    steps(stage, 12)


def three_lanes_contend(stage: Stage) -> None:
    """A static round and a per-token row reserve what a continuous row would grow into; claims order the rest."""
    stage.submit("grows", "continuous", (7,) * 5, max_tokens=9, ignore_eos=True)
    stage.submit("reserves", "static", (8, 8), max_tokens=7, ignore_eos=True)
    steps(stage, 2)
    stage.submit("large", "per_token", (9,) * 9, max_tokens=8, ignore_eos=True)
    for i in range(5):
        stage.submit(f"small {i}", "continuous", (i,) * 3, max_tokens=2, ignore_eos=True)
        steps(stage, 2)
    stage.submit("large as well", "static", (6,) * 11, max_tokens=4, ignore_eos=True)
    steps(stage, 4)


def waits_for_company(stage: Stage) -> None:
    stage.submit("alone", "static", (1, 2), max_tokens=3, ignore_eos=True)
    steps(stage, 4)
    stage.submit("company", "static", (2, 1), max_tokens=5, ignore_eos=True)
    stage.now_s = 2.0
    steps(stage, 3)


def outgrows_the_cache(stage: Stage) -> None:
    stage.submit("outgrows", "continuous", (3,) * 12, max_tokens=14, ignore_eos=True)
    stage.submit("beside it", "continuous", (3,) * 4, max_tokens=14, ignore_eos=True, priority=1)
    steps(stage, 20)


def never_fits(stage: Stage) -> None:
    """One that the context holds and the cache doesn't, before one that is served."""
    stage.submit("too long for the cache", "continuous", (5,) * 16, max_tokens=2)
    stage.submit("too long for the context", "continuous", (5,) * 43, max_tokens=2)
    stage.submit("served", "continuous", (5,) * 15, max_tokens=2, ignore_eos=True)
    steps(stage, 2)


def deadline_within_the_pass(stage: Stage) -> None:
    for i in range(5):
        stage.submit(f"late {i}", "continuous", (i,) * 6, max_tokens=9, ignore_eos=True)
    steps(stage, 3)
    stage.during += [lambda name=name: stage.abort(name, FinishReason.TIMEOUT) for name in ("late 0", "late 4")]
    steps(stage, 2)


STORIES = {
    "forced-preemption": (forced_preemption, "continuous"),
    "three-lanes-contend": (three_lanes_contend, "all three"),
    "waits-for-company": (waits_for_company, "static, waits for company"),
    "outgrows-the-cache": (outgrows_the_cache, "continuous"),
    "never-fits": (never_fits, "continuous"),
    "deadline-within-the-pass": (deadline_within_the_pass, "continuous"),
}


def main() -> None:
    for name, (tell, scene) in STORIES.items():
        path = TRACES / f"{name}.jsonl"
        stage = Stage(replace(SCENES[scene], num_blocks=4), path, Path(tempfile.gettempdir()) / "failed.jsonl")
        tell(stage)
        stage.finish()
        stage.close()
        path.chmod(0o644)


if __name__ == "__main__":
    main()
