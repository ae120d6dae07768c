"""Every lane at every width, with arrivals, cancels and lost blocks: still the tokens of a run alone.

The golden files' greedy runs are transformers'.  Beside ``test_parity.py``, which has every family and each of these
things, this has all of them at once in each lane and at each width, on one family.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from engine.engine_driver import LANES, Engine
from everystep.messages import Abort
from everystep.types import FinishReason

FOLDER = Path(__file__).parents[1] / "golden" / "tiny" / "llama"
CASES = [
    (case["prompt_token_ids"], case["output_token_ids"])
    for case in json.loads((FOLDER / "golden.json").read_text())["cases"]
]
BLOCK_SIZE = 32
LONGEST = max(len(prompt) + len(output) for prompt, output in CASES)
GROWING = [case for case in CASES if len(case[0]) < BLOCK_SIZE < len(case[0]) + len(case[1])]  # into a second block


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def block_bytes(cache: Path) -> int:
    return Engine(FOLDER, cache).info.kv_block_bytes


def crowd(cache: Path, block_bytes: int, policy: str, width: int) -> Engine:
    """Seats for ``width`` rows; in the lane that takes blocks away, too few for all once texts have grown."""
    num_blocks = max(2, width) if policy == "continuous" else (-(-LONGEST // BLOCK_SIZE) + 1) * width
    return Engine(
        FOLDER,
        cache,
        static_batch_size=width,
        per_token_batch_size=width,
        max_num_seqs=width,
        max_num_batched_tokens=max(16, width),
        kv_cache_gib=(num_blocks + 0.5) * block_bytes / 2**30,
    )


@pytest.mark.parametrize("width", [1, 4, 16, 64])
@pytest.mark.parametrize("policy", LANES)
def test_arrivals_cancels_and_lost_blocks_change_no_token_in_any_lane_at_any_width(
    policy: str, width: int, cache: Path, block_bytes: int
) -> None:
    engine, rng = crowd(cache, block_bytes, policy, width), random.Random(width)
    cases = GROWING if policy == "continuous" else CASES
    arrivals = [(f"s{i}", cases[i % len(cases)]) for i in range(2 * width + 6)]
    expected: dict[str, list[int]] = {}
    cancelled: set[str] = set()
    most_rows = 0
    while arrivals or engine.core.has_work():
        for _ in range(rng.randrange(width + 1) + (not engine.core.has_work())):
            if arrivals:
                name, (prompt, output) = arrivals.pop()
                expected[name] = output
                engine.submit(name, policy, prompt, len(output))
        engine.run_step()
        open_ones = [name for name in expected if name not in engine.ends]
        most_rows = max(most_rows, sum(bool(engine.tokens[name]) for name in open_ones))
        if open_ones and rng.random() < 0.03 + 0.3 * (not cancelled):
            cancelled.add(name := rng.choice(open_ones))
            engine.core.abort(Abort(name, FinishReason.ABORTED))
    engine.run_step()  # what was cancelled last is told now
    for name, output in expected.items():
        assert engine.tokens[name] == output[: len(engine.tokens[name])], name
        assert name in cancelled or engine.ends[name] is FinishReason.LENGTH
    assert len(engine.ends) == 2 * width + 6
    assert cancelled, "nobody was cancelled: the test shows less than it says"
    if policy != "continuous":
        assert most_rows >= width // 2, "never was half of the lane's width in use"
    elif width > 1:
        assert engine.num_preemptions > 0, "the pool was too large to force a preemption"
