"""What the GPU table compares: each contender takes prompts of token ids and gives each a fixed number of tokens.

Owns how each is driven.  Ignorant of clocks and of the table.  Needs torch, transformers, NumPy and msgspec alone.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from everystep.engine.core import EngineCore
from everystep.messages import Submit
from everystep.runner.torch_paged import TorchRunner
from everystep.runner.torch_paged.cuda_attention import gathered
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_path import CudaPath
from everystep.runner.torch_paged.layer_caches import block_bytes
from everystep.runner.torch_paged.loading import load
from everystep.runner.torch_paged.placement import Placement
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import Policy, StepPlan, StepResult

Prompts = Sequence[Sequence[int]]
Contender = Callable[[Prompts, int], list[list[int]]]
STATIC_BATCH = 4
TOKEN_BUDGET = 8192
CACHE_TOKENS = 2**18


class StandIn:
    """The GPU's path on a CPU, to try the script where there is no GPU."""

    precision = "f32"

    def __init__(self, folder: Path) -> None:
        placement = Placement(torch.device("cpu"), "f32")
        loaded = load(folder, placement, GatheredAttention())
        self._path = CudaPath(loaded, gathered(), capture=lambda compute: compute)
        self.block_size, self.vocab_size = self._path.block_size, loaded.vocab_size
        self.kv_block_bytes = block_bytes(loaded.layers, self.block_size, placement.dtype)
        self.allocate, self.warm_up, self.close = self._path.allocate, self._path.warm_up, self._path.close
        self.free_cache_bytes = self._path.free_cache_bytes

    def run(self, plan: StepPlan) -> StepResult:
        return self._path.run(plan.rows)


class Ours:
    """One warm runner for all our policies."""

    def __init__(self, folder: Path, device: str, max_rows: int) -> None:
        started = time.perf_counter()
        runner: Any = TorchRunner(folder, device="cuda") if device == "cuda" else StandIn(folder)
        loaded = time.perf_counter()
        free = runner.free_cache_bytes()
        self._num_blocks = CACHE_TOKENS // runner.block_size
        if free is not None:
            self._num_blocks = min(self._num_blocks, free // runner.kv_block_bytes)
        runner.allocate(self._num_blocks)
        before_warm = time.perf_counter()
        runner.warm_up(max_rows, 512)
        path = runner._path
        self._runner = runner
        self.facts = {
            "attention": path.kernel_name,
            "block_size": runner.block_size,
            "precision": runner.precision,
            "num_graphs": 0 if path.graphs is None else len(path.graphs),
            "free_cache_gib": None if free is None else round(free / 2**30, 2),
            "load_s": round(loaded - started, 2),
            "warm_up_s": round(time.perf_counter() - before_warm, 2),
        }

    def contender(self, policy: str, num_seats: int) -> Contender:
        return lambda prompts, num_tokens: self._run(policy, num_seats, prompts, num_tokens)

    def close(self) -> None:
        self._runner.close()

    def _run(self, policy: str, num_seats: int, prompts: Prompts, num_tokens: int) -> list[list[int]]:
        pool = BlockPool(self._num_blocks, self._runner.block_size)
        ticks = itertools.count()
        lanes = {policy: _lane(policy, num_seats, pool)}
        core = EngineCore(runner=self._runner, lanes=lanes, pool=pool, now_s=lambda: float(next(ticks)))
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        for i, prompt in enumerate(prompts):
            core.submit(Submit(str(i), str(i), policy, tuple(prompt), params, i, (), 0, 0.0))
        outputs: dict[str, list[int]] = {str(i): [] for i in range(len(prompts))}
        while core.has_work():
            step = core.step()
            for event in step.events if step is not None else ():
                if event.error is not None:
                    raise RuntimeError(event.error)
                if event.token is not None:
                    outputs[event.sequence_id].append(event.token.token_id)
        return list(outputs.values())


def _lane(policy: str, num_seats: int, pool: BlockPool) -> Policy:
    if policy == "static":
        return StaticPolicy(num_seats, pool=pool)
    if policy == "per_token":
        return PerTokenPolicy(num_seats, pool=pool)
    return ContinuousPolicy(num_seats, TOKEN_BUDGET, pool=pool)


def load_model(folder: Path, device: str) -> Any:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
    return model.eval().to(device)


def static_generate(model: Any) -> Contender:
    """The hand-written server's way: rounds of four, left-padded, one ``generate()`` a round."""
    pad = model.config.pad_token_id or 0

    def run(prompts: Prompts, num_tokens: int) -> list[list[int]]:
        outputs: list[list[int]] = []
        for at in range(0, len(prompts), STATIC_BATCH):
            members = prompts[at : at + STATIC_BATCH]
            longest = max(map(len, members))
            ids = torch.tensor([[pad] * (longest - len(one)) + list(one) for one in members])
            mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in members])
            made = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                do_sample=False,
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
                pad_token_id=pad,
            )
            outputs += made[:, longest:].tolist()
        return outputs

    return run


class TheirContinuous:
    """transformers' own continuous batching, its manager started once: what that takes isn't in the figures."""

    def __init__(self, model: Any) -> None:
        settings = transformers.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        self._manager = model.init_continuous_batching(generation_config=settings)
        with torch.no_grad():
            self._manager.warmup()
            self._manager.start()

    def __call__(self, prompts: Prompts, num_tokens: int) -> list[list[int]]:
        ids = self._manager.add_requests([list(prompt) for prompt in prompts], max_new_tokens=num_tokens)
        outputs: dict[str, list[int]] = {}
        while len(outputs) < len(ids):
            result = self._manager.get_result(timeout=1)
            if result is None and not self._manager.is_running():
                raise RuntimeError("its thread has ended")
            if result is not None and result.is_finished():
                if result.error is not None:
                    raise RuntimeError(result.error)
                outputs[result.request_id] = list(result.generated_tokens)
        return [outputs[request_id] for request_id in ids]

    def close(self) -> None:
        self._manager.stop(block=True, timeout=5)
