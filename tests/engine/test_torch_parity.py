"""In f32 the torch runner gives, in every lane and company, the tokens of transformers' own single greedy run.

Fresh random models of eleven families, the whole engine; and SmolLM2's real weights against its golden file.
"""

import json
import random
from pathlib import Path

import pytest

from engine.engine_driver import LANES, Engine
from everystep.messages import Abort
from everystep.types import FinishReason

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

FAMILIES = [
    "opt",
    "gpt2",
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt_neox",
    "deepseek_v3",
]
SIZES = [1, 4, 16, 64]
BLOCK_SIZE = 16
SMOLLM2 = Path(__file__).parents[1] / "golden" / "smollm2.json"


@pytest.fixture(scope="module")
def torch_families():
    from runner import torch_families

    return torch_families


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, torch_families, tmp_path_factory):
    folder = torch_families.save(torch_families.FAMILIES[request.param], tmp_path_factory.mktemp(request.param))
    return folder, torch_families.greedy_cases(folder)


def torch_engine(model, cache_dir, **settings):
    """One thread: the models are tiny, and others may compute beside us."""
    defaults = {"runner": "torch", "device": "cpu", "threads": 1, "kv_cache_gib": 0.05}
    return Engine(model, cache_dir, **(defaults | settings))


@pytest.mark.parametrize("policy", LANES)
def test_every_lane_of_the_torch_runner_gives_the_tokens_of_a_single_greedy_run(family, policy, tmp_path):
    folder, cases = family
    engine = torch_engine(
        folder, tmp_path, max_num_batched_tokens=64 if policy != "continuous" else 16, max_num_seqs=16
    )
    for size in SIZES:
        for i in range(size):
            case = cases[i % len(cases)]
            engine.submit(f"{size}-{i}", policy, case.prompt, len(case.output))
        engine.run()
        for i in range(size):
            assert engine.tokens[f"{size}-{i}"] == cases[i % len(cases)].output, f"{folder.name} N={size} {i}"


def test_arrivals_aborts_chunks_prefix_hits_and_preemption_change_no_token_of_the_torch_runner(family, tmp_path):
    folder, cases = family
    longest = max(len(case.prompt) + len(case.output) for case in cases)
    num_blocks = -(-longest // BLOCK_SIZE) + 6  # room for the longest and little else: growth must preempt
    block_bytes = torch_engine(folder, tmp_path).info.kv_block_bytes
    engine = torch_engine(
        folder,
        tmp_path,
        max_num_seqs=16,
        max_num_batched_tokens=16,
        kv_cache_gib=(num_blocks + 0.5) * block_bytes / 2**30,
    )
    assert (engine.info.num_blocks, engine.info.block_size) == (num_blocks, BLOCK_SIZE)
    expected, aborted = send_at_random(engine, cases)
    for name, output in expected.items():
        got = engine.tokens[name]
        assert got == output[: len(got)], f"{folder.name} {name}"
        assert name in aborted or got == output
    assert len(engine.ends) == len(expected)
    assert engine.num_preemptions > 0, "the pool was too large to force a preemption"
    assert engine.num_hit_tokens > 0, "no prefix was hit"


def send_at_random(engine, cases, num_sequences=60):
    """Arrivals and aborts as they come; what each should say, and who was aborted."""
    rng = random.Random(7)
    expected, aborted = {}, set()
    arrivals = [
        (f"s{i}", rng.choice(LANES if i % 4 == 0 else ["continuous"]), cases[i % len(cases)])
        for i in range(num_sequences)
    ]
    while arrivals or engine.core.has_work():
        for _ in range(rng.randrange(4)):
            if arrivals:
                name, policy, case = arrivals.pop()
                expected[name] = case.output
                engine.submit(name, policy, case.prompt, len(case.output))
        engine.run_step()
        running = [name for name in expected if name not in engine.ends]
        if running and rng.random() < 0.05:
            aborted.add(name := rng.choice(running))
            engine.core.abort(Abort(name, FinishReason.ABORTED))
    engine.run()
    return expected, aborted


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("mistral", {"sliding_window": None}),
        ("phi3", {"sliding_window": None}),
        ("gemma2", {"layer_types": ["full_attention"] * 3}),
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gemma3", {"layer_types": ["full_attention"] * 3}),
    ],
)
def test_the_windows_and_caps_of_the_tiny_models_do_change_their_tokens(torch_families, name, without, tmp_path):
    """Else the tests above would pass without them."""
    folder = torch_families.save(torch_families.FAMILIES[name], tmp_path)
    cases = torch_families.greedy_cases(folder)
    others = torch_families.greedy_outputs(folder, cases, **without)
    assert sum(case.output != other for case, other in zip(cases, others, strict=True)) >= 4


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("policy", "size", "stride"), [("static", 8, 4), ("per_token", 8, 4), ("continuous", 64, 1)])
def test_smollm2_gives_transformers_tokens_on_the_torch_runner(policy, size, stride, smollm2_cache):
    """Prompts of 1 to 290 tokens; in the continuous lane each comes twice, so that prefixes are hit."""
    cases = [(case["prompt_token_ids"], case["output_token_ids"]) for case in json.loads(SMOLLM2.read_text())["cases"]]
    engine = torch_engine("smollm2-135m", smollm2_cache, kv_cache_gib=1.0, max_num_batched_tokens=128)
    chosen = [cases[i * stride % len(cases)] for i in range(size)]
    for i, (prompt, output) in enumerate(chosen):
        engine.submit(f"s{i}", policy, prompt, len(output))
    engine.run()
    for i, (prompt, output) in enumerate(chosen):
        assert engine.tokens[f"s{i}"] == output, f"prompt of {len(prompt)} tokens"
    assert policy != "continuous" or engine.num_hit_tokens > 0
