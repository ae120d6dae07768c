"""Small random models of every family that the torch runner is tested with, saved as Hugging Face folders.

Needs torch and transformers: tests import it where they run.  Windows are shorter than most prompts and caps low, so
that a runner without them gives other tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_golden as golden
import torch
import transformers

WINDOW = 12
PROMPT_LENS = (1, 2, 7, 16, 31, 33, 64, 90)
NUM_TOKENS = 20
MIN_GAP = 5e-3  # of the two best logits along the way: far above float noise
MIN_DISTINCT = 6  # of an output's 20 tokens, on average: a model that repeats one token tests nothing

SIZES: dict[str, Any] = {
    **golden.PLAIN,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2}
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 30.0}
WIDE_HEADS: dict[str, Any] = {
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "layer_types": ALTERNATING,
    "tie_word_embeddings": False,
}

FAMILIES: dict[str, transformers.PretrainedConfig] = {
    "opt": transformers.OPTConfig(**golden.PLAIN, **golden.OPT_SIZES, max_position_embeddings=256),
    "gpt2": transformers.GPT2Config(**golden.PLAIN, **golden.GPT2_SIZES),
    "llama": transformers.LlamaConfig(**GROUPED, head_dim=32, rope_parameters=golden.LLAMA3_ROPE),
    "qwen2": transformers.Qwen2Config(**GROUPED),
    "qwen3": transformers.Qwen3Config(**GROUPED, head_dim=32, tie_word_embeddings=True),
    "mistral": transformers.MistralConfig(**GROUPED, sliding_window=WINDOW),
    "gemma2": transformers.Gemma2Config(**GROUPED, **WIDE_HEADS, **CAPS, sliding_window=WINDOW),
    "gemma3": transformers.Gemma3TextConfig(**GROUPED, **WIDE_HEADS, sliding_window=WINDOW),
    "phi3": transformers.Phi3Config(**GROUPED, sliding_window=WINDOW),
    "gpt_neox": transformers.GPTNeoXConfig(**SIZES),
    # Expanded latent attention: keys and values of different widths.
    "deepseek_v3": transformers.DeepseekV3Config(
        **{**GROUPED, "num_key_value_heads": 4},
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=12,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=32,
    ),
}


@dataclass(frozen=True)
class Case:
    """A prompt and what ``generate()`` says after it, alone."""

    prompt: list[int]
    output: list[int]


def save(config: transformers.PretrainedConfig, folder: Path, seed: int = 2026) -> Path:
    """A folder with weights and a tokenizer."""
    golden.save_tiny(golden.random_model(config, seed), torch.float32, folder, is_sharded=False)
    golden.save_tokenizer(golden.train_tokenizer(), folder)
    return folder


def greedy_cases(folder: Path) -> list[Case]:
    """transformers' own greedy runs, one prompt of each length, each with a wide gap along the way."""
    model, rng, cases = golden.load(folder, torch.float32), random.Random(3), []
    for length in PROMPT_LENS:
        while True:
            prompt = [rng.randrange(3, golden.VOCAB_SIZE) for _ in range(length)]
            case, _ = golden.greedy_case(model, prompt, NUM_TOKENS)
            if case["min_gap"] > MIN_GAP:
                cases.append(Case(prompt, case["output_token_ids"]))
                break
    num_distinct = sum(len(set(case.output)) for case in cases) / len(cases)
    assert num_distinct >= MIN_DISTINCT, f"outputs have only {num_distinct:.1f} distinct tokens: they test little"
    return cases


def greedy_outputs(folder: Path, cases: list[Case], **config: Any) -> list[list[int]]:
    """The same prompts after the model's config was changed."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **config
    ).eval()
    return [golden.greedy_case(model, case.prompt, NUM_TOKENS)[0]["output_token_ids"] for case in cases]
