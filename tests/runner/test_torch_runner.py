"""The torch runner by itself: chunks, company, sampling, precision, what it reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everystep.runner.sampling import Sampler
from everystep.types import Row, StepPlan
from runner.plan_by_hand import NUM_BLOCKS, TINY, Desk, golden_cases

pytestmark = pytest.mark.torch


def torch_runner(folder: Path, **options: Any) -> Any:
    from everystep.runner.torch_paged import TorchRunner

    runner = TorchRunner(folder, **{"precision": "f32", "device": "cpu", "num_threads": 1, **options})
    runner.allocate(NUM_BLOCKS)
    runner.warm_up(4, 16)
    return runner


@pytest.fixture(scope="module")
def llama() -> Iterator[Any]:
    runner = torch_runner(TINY / "llama")
    yield runner
    runner.close()


def prompts_of(lengths: tuple[int, ...], seed: int = 3) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 384, length).tolist() for length in lengths]


@pytest.mark.parametrize("chunk", [1, 5, 16, 300])
def test_a_prompt_read_in_any_chunks_gives_the_logits_of_the_golden_file(llama: Any, chunk: int) -> None:
    cases = [case for case in golden_cases("llama") if "logits" in case]
    assert cases
    for case in cases:
        logits = Desk(llama).logits(case["prompt_token_ids"], chunk)
        np.testing.assert_allclose(logits, case["logits"]["values"], atol=1e-3)


def test_company_changes_a_row_by_rounding_only(llama: Any) -> None:
    """Matrix products of more rows add up in another order, so the bits may differ; the tokens don't."""
    prompts = prompts_of((40, 3, 70, 1, 64, 9, 9, 9, 33, 17, 16, 2))
    alone = np.stack([Desk(llama).logits(prompt, len(prompt)) for prompt in prompts])
    desk = Desk(llama)
    together = llama.logits(desk.plan([(desk.sequence(prompt, 1), len(prompt)) for prompt in prompts]))
    np.testing.assert_allclose(together, alone, atol=2e-4 * alone.std(), rtol=0)


def test_a_step_in_which_nobody_samples_gives_no_token(llama: Any) -> None:
    desk = Desk(llama)
    sequence = desk.sequence(prompts_of((100,))[0])
    assert desk.step((sequence, 70)).tokens == {}
    assert sequence.num_computed_tokens == 70


def test_the_tokens_drawn_are_the_samplers_own_for_the_seed_and_position(llama: Any) -> None:
    """Whatever runner computed the logits, one sampler draws: same logits, same seed, same tokens."""
    desk, prompts = Desk(llama), prompts_of((5, 17, 40))
    options: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "logprobs": 2}
    sequences = [desk.sequence(prompt, **options) for prompt in prompts]
    plan = desk.plan([(sequence, sequence.num_tokens) for sequence in sequences])
    for seed in (1, 2):
        for sequence in sequences:
            sequence.seed = seed
        expected = Sampler(llama.vocab_size).sample(llama.logits(plan), list(plan.rows))
        assert llama.run(plan).tokens == expected.tokens


def test_the_openvino_runner_draws_the_same_tokens_from_the_same_seeds(llama: Any, tmp_path: Path) -> None:
    from runner.plan_by_hand import tiny_runner

    openvino = tiny_runner("llama", tmp_path)
    prompts, outputs = prompts_of((5, 17, 40)), []
    for runner in (llama, openvino):
        desk = Desk(runner)
        sequences = [desk.sequence(prompt, temperature=1.0, top_p=0.9) for prompt in prompts]
        for sequence in sequences:
            desk.step((sequence, sequence.num_tokens))
            for _ in range(11):
                desk.step((sequence, 1))
        outputs.append([sequence.token_ids for sequence in sequences])
    openvino.close()
    assert outputs[0] == outputs[1]


def test_a_row_that_fails_fails_alone(llama: Any) -> None:
    """Its numbers aren't finite, and it leaves them in its block; who gets the block next computes as ever."""
    desk = Desk(llama)
    good, bad = (desk.sequence(prompt) for prompt in prompts_of((20, 9)))
    expected = Desk(llama).logits(good.token_ids, 20)
    for cache in llama._path._caches:
        cache.keys[bad.block_ids] = float("nan")
        cache.values[bad.block_ids] = float("nan")
    plan = StepPlan("p", (Row(bad, 0, 8, 1), Row(good, 1, 0, 20)))
    result = llama.run(plan)
    assert set(result.errors) == {bad.sequence_id}
    assert result.tokens[good.sequence_id].token_id == expected.argmax()
    heir = desk.sequence(good.token_ids)
    heir.block_ids = bad.block_ids
    np.testing.assert_allclose(llama.logits(desk.plan([(heir, 20)]))[0], expected, atol=1e-4)


def test_a_block_takes_the_bytes_that_the_layers_keep(llama: Any) -> None:
    layers, kv_heads, head_dim, num_bytes = 2, 2, 32, 4
    assert llama.kv_block_bytes == llama.block_size * layers * kv_heads * 2 * head_dim * num_bytes
    caches = llama._path._caches
    assert len(caches) == layers
    assert caches[0].keys.shape == (NUM_BLOCKS + 1, llama.block_size, kv_heads, head_dim)
    assert (llama.name, llama.precision, llama.num_threads, llama.vocab_size) == ("torch", "f32", 1, 384)
    assert llama.free_cache_bytes() is None


def test_bf16_halves_the_cache_and_stays_near_f32(llama: Any) -> None:
    rough = torch_runner(TINY / "llama", precision="bf16")
    assert rough.kv_block_bytes * 2 == llama.kv_block_bytes
    for prompt in prompts_of((1, 17, 80)):
        exact, logits = (Desk(runner).logits(prompt, len(prompt)) for runner in (llama, rough))
        assert np.corrcoef(exact, logits)[0, 1] > 0.99
    rough.close()


def test_rotary_frequencies_that_switch_by_the_longest_text_bound_the_context(tmp_path: Path) -> None:
    """Beyond the border a row's frequencies would depend on its neighbours: such a row fails alone, with the limit."""
    import torch
    import transformers

    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.Phi3Config(
        **sizes,
        vocab_size=384,
        max_position_embeddings=128,
        original_max_position_embeddings=32,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **factors},
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    transformers.Phi3ForCausalLM(config).save_pretrained(tmp_path)
    runner = torch_runner(tmp_path)
    assert runner.max_context_len == 32
    desk = Desk(runner)
    short, long = (desk.sequence(prompt) for prompt in prompts_of((20, 33)))
    expected = Desk(runner).logits(short.token_ids, 20)
    result = desk.step((short, 20), (long, 33))
    assert result.tokens[short.sequence_id].token_id == expected.argmax()
    assert "over the 32 tokens" in result.errors[long.sequence_id]
    runner.close()
