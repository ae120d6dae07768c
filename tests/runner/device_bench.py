"""Tiny random models on a device, transformers' own answers there, and policies run over a device's path.

Needs torch, transformers, NumPy and msgspec alone, since it also runs on GPU machines that have little else.  The same
runs serve the tests on a CPU, with stand-ins for graphs, and those on a GPU.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from everystep.engine.core import EngineCore
from everystep.messages import StepOutput, Submit
from everystep.runner.torch_paged.cuda_attention import KernelChoice, gathered
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_path import CudaPath
from everystep.runner.torch_paged.layer_caches import block_bytes
from everystep.runner.torch_paged.loading import load
from everystep.runner.torch_paged.placement import Placement
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import Policy, Row, StepPlan, StepResult

VOCAB = 160
CONTEXT = 256
WINDOW = 12
CLEAR_GAP = 2e-3  # between the two largest logits: far above float32 noise
NUM_TOKENS = 12
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "initializer_range": 0.2}
ALTERNATING = {"head_dim": 32, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
OPT = {**SIZES, "ffn_dim": 96, "init_std": 0.2, "word_embed_proj_dim": 64}
GPT2 = {"vocab_size": VOCAB, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "initializer_range": 0.2}
CAPPED = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("OPTConfig", OPT),
    "gpt2": ("GPT2Config", GPT2),
    "llama": ("LlamaConfig", {**GROUPED, "head_dim": 16}),
    "qwen3": ("Qwen3Config", {**GROUPED, "head_dim": 32}),
    "mistral": ("MistralConfig", {**GROUPED, "sliding_window": WINDOW}),
    "gemma2": ("Gemma2Config", {**GROUPED, **ALTERNATING, **CAPPED, "query_pre_attn_scalar": 24}),
}


@dataclass(frozen=True)
class Case:
    """A prompt and the greedy tokens after it."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]


class PathRunner:
    """A device's path as a :class:`everystep.types.Runner`."""

    def __init__(self, folder: Path, path: CudaPath, kv_block_bytes: int, vocab_size: int) -> None:
        self.folder = folder
        self.path = path
        self.block_size = path.block_size
        self.kv_block_bytes = kv_block_bytes
        self.vocab_size = vocab_size
        self.allocate, self.warm_up, self.close = path.allocate, path.warm_up, path.close

    def run(self, plan: StepPlan) -> StepResult:
        return self.path.run(plan.rows)


def save_tiny(family: str, folder: Path) -> Path:
    """A random model of the family as a Hugging Face folder without a tokenizer."""
    config_name, options = FAMILIES[family]
    config = getattr(transformers, config_name)(**options)
    torch.manual_seed(11)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


def make_runner(
    folder: Path,
    device: torch.device,
    *,
    precision: str = "f32",
    choice: KernelChoice | None = None,
    has_graphs: bool = True,
    num_blocks: int = 400,
    max_rows: int = 64,
) -> PathRunner:
    """Loaded, allocated and warm.  On a CPU a graph's stand-in computes anew from the memory that a graph reads."""
    placement = Placement(device, precision)
    loaded = load(folder, placement, GatheredAttention())
    stand_in = None if device.type == "cuda" else (lambda compute: compute)
    path = CudaPath(loaded, choice or gathered(), has_graphs=has_graphs, capture=stand_in)
    bytes_a_block = block_bytes(loaded.layers, path.block_size, placement.dtype)
    runner = PathRunner(folder, path, bytes_a_block, loaded.vocab_size)
    runner.allocate(num_blocks)
    runner.warm_up(max_rows, 64)
    return runner


def references(folder: Path, device: torch.device, num_cases: int, max_len: int = 60) -> list[Case]:
    """transformers' own greedy runs, each prompt alone, with a clear gap all along the way."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = model.eval().to(device)
    rng, cases = random.Random(5), []
    while len(cases) < num_cases:
        prompt = [rng.randrange(3, VOCAB) for _ in range(rng.randint(1, max_len))]
        ids = torch.tensor([prompt], device=device)
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=NUM_TOKENS,
            max_new_tokens=NUM_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        best = torch.stack(made.logits).topk(2).values  # [tokens, 1, 2]
        if float((best[..., 0] - best[..., 1]).min()) > CLEAR_GAP:
            cases.append(Case(tuple(prompt), tuple(made.sequences[0, len(prompt) :].tolist())))
    return cases


def make_policy(name: str, pool: BlockPool, num_seats: int, budget: int = 48) -> Policy:
    if name == "static":
        return StaticPolicy(num_seats, pool=pool, max_model_len=CONTEXT)
    if name == "per_token":
        return PerTokenPolicy(num_seats, pool=pool, max_model_len=CONTEXT)
    return ContinuousPolicy(num_seats, max(budget, num_seats), pool=pool, max_model_len=CONTEXT)


def serve(
    runner: Any,
    policy: str,
    prompts: Iterable[Sequence[int]],
    params: Sequence[SamplingParams] | SamplingParams,
    *,
    num_seats: int = 4,
    num_blocks: int = 400,
    budget: int = 48,
    seed: int = 0,
) -> tuple[list[list[int]], Policy, list[StepOutput]]:
    """Outputs in the order of the prompts, the policy with its counts, and the steps.  Prompts come as seats do."""
    pool = BlockPool(num_blocks, runner.block_size)
    lane = make_policy(policy, pool, num_seats, budget)
    ticks = itertools.count()
    core = EngineCore(runner=runner, lanes={policy: lane}, pool=pool, now_s=lambda: float(next(ticks)))
    prompts = list(prompts)
    every = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    for i, (prompt, one) in enumerate(zip(prompts, every, strict=True)):
        core.submit(Submit(str(i), str(i), policy, tuple(prompt), one, seed + i, (), 0, 0.0))
    outputs: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
    steps = []
    while core.has_work():
        output = core.step()
        assert output is not None, "nobody can run, though there is work"
        steps.append(output)
        for event in output.events:
            assert event.error is None, event.error
            if event.token is not None:
                outputs[event.sequence_id].append(event.token.token_id)
    assert not core.take_events(), "a sequence was refused"
    pool.check()
    return [outputs[str(i)] for i in range(len(prompts))], lane, steps


def greedy(num_tokens: int = NUM_TOKENS) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True)


def last_logits(runner: PathRunner, prompt: Sequence[int], chunk: int) -> torch.Tensor:
    """``[vocab]`` f32 behind the prompt, read ``chunk`` tokens at a time into the first blocks."""
    from everystep.types import Sequence as TokenSequence

    num_blocks = -(-len(prompt) // runner.block_size)
    blocks = list(reversed(range(num_blocks)))
    text = TokenSequence("l", "l", "l", list(prompt), len(prompt), greedy(), 0, frozenset(), block_ids=blocks)
    found = torch.empty(0)
    for start in range(0, len(prompt), chunk):
        row = Row(text, 0, start, min(chunk, len(prompt) - start))
        found = torch.from_numpy(runner.path.logits([row])).reshape(-1)
    return found
