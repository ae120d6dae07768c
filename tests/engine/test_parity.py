"""In f32 every lane gives the tokens of transformers' single greedy run: golden files, whole engine, real models.

The golden files' maker (``tests/golden/make_golden.py``) keeps only prompts whose two likeliest tokens stay apart by
far more than float noise at every step.
"""

import json
import random
from pathlib import Path

import pytest

from engine.engine_driver import LANES, Engine
from everystep.messages import Abort
from everystep.types import FinishReason

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = ["llama", "llama3", "mistral", "qwen2", "qwen3", "opt", "gpt2"]
SIZES = [1, 4, 16, 64]


def golden_cases(path):
    return [(case["prompt_token_ids"], case["output_token_ids"]) for case in json.loads(path.read_text())["cases"]]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    folder = GOLDEN / "tiny" / request.param
    cache = tmp_path_factory.mktemp("cache")
    return folder, cache, golden_cases(folder / "golden.json")


@pytest.mark.parametrize("policy", LANES)
def test_every_lane_gives_the_tokens_of_a_single_greedy_run_at_every_size(family, policy):
    folder, cache, cases = family
    engine = Engine(folder, cache)
    for size in SIZES:
        expected = {}
        for i in range(size):
            case = cases[i % len(cases)]
            expected[f"{size}-{i}"] = case[1]
            engine.submit(f"{size}-{i}", policy, case[0], len(case[1]))
        engine.run()
        for name, output in expected.items():
            assert engine.tokens[name] == output, f"{folder.name} {policy} N={size} {name}"


def test_random_arrivals_aborts_chunks_of_16_prefix_hits_and_forced_preemption_change_no_token(family):
    folder, cache, cases = family
    longest = max(len(prompt) + len(output) for prompt, output in cases)
    block_bytes = Engine(folder, cache).info.kv_block_bytes
    num_blocks = -(-longest // 32) + 6  # room for the longest and little else: growth must preempt
    engine = Engine(
        folder,
        cache,
        max_num_seqs=16,
        max_num_batched_tokens=16,
        kv_cache_gib=(num_blocks + 0.5) * block_bytes / 2**30,
    )
    assert engine.info.num_blocks == num_blocks
    rng = random.Random(7)
    expected, aborted = {}, set()
    arrivals = [
        (f"s{i}", rng.choice(LANES if i % 4 == 0 else ["continuous"]), cases[i % len(cases)]) for i in range(60)
    ]
    while arrivals or engine.core.has_work():
        for _ in range(rng.randrange(4)):
            if arrivals:
                name, policy, case = arrivals.pop()
                expected[name] = case[1]
                engine.submit(name, policy, case[0], len(case[1]))
        engine.run_step()
        running = [name for name in expected if name not in engine.ends]
        if running and rng.random() < 0.05:
            name = rng.choice(running)
            engine.core.abort(Abort(name, FinishReason.ABORTED))
            aborted.add(name)
    engine.run()
    for name, output in expected.items():
        got = engine.tokens[name]
        assert got == output[: len(got)], f"{folder.name} {name}"
        assert name in aborted or got == output
    assert len(engine.ends) == 60
    assert engine.num_preemptions > 0, "the pool was too large to force a preemption"
    assert engine.num_hit_tokens > 0, "no prefix was hit"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", LANES)
def test_smollm2_gives_transformers_tokens_in_every_lane(policy, smollm2_cache):
    cases = golden_cases(GOLDEN / "smollm2.json")
    engine = Engine("smollm2-135m", smollm2_cache)
    for i, (prompt, output) in enumerate(cases):
        engine.submit(f"s{i}", policy, prompt, len(output))
    engine.run()
    for i, (_, output) in enumerate(cases):
        assert engine.tokens[f"s{i}"] == output, f"prompt {i}"
