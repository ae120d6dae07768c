"""Parity against transformers run here and now, on weights that no golden file knows.  Needs torch."""

import random

import numpy as np
import pytest

from engine.engine_driver import LANES, Engine
from everystep.types import Row, Sequence, StepPlan

pytestmark = pytest.mark.torch

PROMPT_LENS = (1, 2, 7, 16, 31, 33, 64, 90)
NUM_TOKENS = 20
MIN_GAP = 5e-3  # of the two best logits along the way: far above float noise


@pytest.fixture(scope="module")
def golden():
    """The golden files' own maker: random models, greedy runs."""
    import make_golden

    return make_golden


@pytest.fixture(scope="module", params=["llama", "llama3", "mistral", "qwen2", "qwen3", "opt", "gpt2"])
def live_model(request, golden, tmp_path_factory):
    """A fresh random model in a folder, and transformers' greedy runs on it."""
    import torch

    folder = tmp_path_factory.mktemp(request.param)
    config, dtype = golden.TINY_MODELS[request.param]
    golden.save_tiny(golden.random_model(config, seed=2026), dtype, folder, is_sharded=request.param == "llama")
    golden.save_tokenizer(golden.train_tokenizer(), folder)
    model = golden.load(folder, torch.float32)
    rng, cases = random.Random(3), []
    for length in PROMPT_LENS:
        while True:
            prompt = [rng.randrange(3, golden.VOCAB_SIZE) for _ in range(length)]
            case, logits = golden.greedy_case(model, prompt, NUM_TOKENS)
            if case["min_gap"] > MIN_GAP:
                cases.append((prompt, case["output_token_ids"], logits[0].numpy()))
                break
    return folder, cases


@pytest.mark.parametrize("policy", LANES)
def test_fresh_random_models_agree_token_by_token_in_every_lane(live_model, policy, tmp_path):
    folder, cases = live_model
    engine = Engine(folder, tmp_path, max_num_batched_tokens=64 if policy != "continuous" else 16, max_num_seqs=16)
    for i in range(64):
        engine.submit(f"s{i}", policy, cases[i % len(cases)][0], NUM_TOKENS)
    engine.run()
    for i in range(64):
        assert engine.tokens[f"s{i}"] == cases[i % len(cases)][1], f"{folder.name} {policy} {i}"


def test_f32_logits_agree_within_a_thousandth(live_model, tmp_path):
    folder, cases = live_model
    engine = Engine(folder, tmp_path)
    for prompt, _, expected in cases:
        logits = prompt_logits(engine, prompt)
        assert np.abs(logits - expected).max() < 1e-3


@pytest.mark.timeout(1200)
def test_smollm2_agrees_with_transformers_on_the_same_file(golden, smollm2_cache):
    import torch
    import transformers

    from everystep.checkpoint import open_checkpoint

    path = open_checkpoint("smollm2-135m", smollm2_cache).path
    folder, _, name = path.rpartition("/")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    engine = Engine("smollm2-135m", smollm2_cache)
    rng, expected = random.Random(5), {}
    for i in range(10):
        prompt = [rng.randrange(17, 49152) for _ in range(1 + 6 * i)]
        case, logits = golden.greedy_case(model, prompt, 12)
        assert np.abs(prompt_logits(engine, prompt) - logits[0].numpy()).max() < 1e-3
        if case["min_gap"] > MIN_GAP:
            expected[f"s{i}"] = case["output_token_ids"]
            engine.submit(f"s{i}", LANES[i % 3], prompt, 12)
    engine.run()
    assert len(expected) >= 4, "too few prompts keep their gap: the test shows nothing"
    assert engine.tokens == expected


def prompt_logits(engine, prompt):
    """Logits behind the prompt's last token, [vocab], straight from the runner, in block 0 and what follows."""
    sequence = Sequence("x", "x", "continuous", list(prompt), len(prompt), None, 0, frozenset())
    sequence.block_ids = list(range(-(-len(prompt) // engine.core.runner.block_size)))
    return engine.core.runner.logits(StepPlan("continuous", (Row(sequence, 0, 0, len(prompt)),)))[0]
