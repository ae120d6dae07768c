"""Step plans made by hand, over block tables that are scattered on purpose."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everystep.checkpoint import open_checkpoint
from everystep.runner.openvino_runner import OpenVINORunner
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence, StepPlan, StepResult

TINY = Path(__file__).parents[1] / "golden" / "tiny"
FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "opt", "gpt2")
NUM_BLOCKS = 256


def tiny_runner(family: str, cache_dir: Path, **options: Any) -> OpenVINORunner:
    checkpoint = open_checkpoint(str(TINY / family), cache_dir)
    runner = OpenVINORunner(checkpoint, num_threads=2, cache_dir=cache_dir, **{"precision": "f32", **options})
    runner.allocate(NUM_BLOCKS)
    return runner


def golden_cases(family: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((TINY / family / "golden.json").read_text("utf-8"))["cases"]
    return cases


class Desk:
    """Makes sequences whose blocks lie anywhere, and runs steps of them."""

    def __init__(self, runner: OpenVINORunner) -> None:
        self.runner = runner
        self._free = list(range(NUM_BLOCKS))
        random.Random(7).shuffle(self._free)

    def sequence(self, prompt: Iterable[int], max_tokens: int = 24, **params: Any) -> Sequence:
        token_ids = list(prompt)
        num_blocks = -(-(len(token_ids) + max_tokens) // self.runner.block_size)
        return Sequence(
            sequence_id=f"s{len(self._free)}",
            request_id="r",
            policy="p",
            token_ids=token_ids,
            num_prompt_tokens=len(token_ids),
            params=SamplingParams(max_tokens=max_tokens, **params),
            seed=1,
            eos_token_ids=frozenset(),
            block_ids=[self._free.pop() for _ in range(num_blocks)],
        )

    def plan(self, rows: Iterable[tuple[Sequence, int]]) -> StepPlan:
        """``rows`` are sequences and how many tokens each computes."""
        return StepPlan("p", tuple(Row(s, i, s.num_computed_tokens, n) for i, (s, n) in enumerate(rows)))

    def step(self, *rows: tuple[Sequence, int]) -> StepResult:
        """Run, and let computed and known tokens move as a policy would."""
        plan = self.plan(rows)
        result = self.runner.run(plan)
        for row in plan.rows:
            row.sequence.num_computed_tokens = row.end
            if row.sequence.sequence_id in result.tokens:
                row.sequence.token_ids.append(result.tokens[row.sequence.sequence_id].token_id)
        return result

    def logits(self, prompt: list[int], chunk: int) -> npt.NDArray[np.float32]:
        """Logits ``[vocab]`` after the prompt, read ``chunk`` tokens at a time."""
        sequence = self.sequence(prompt)
        for start in range(0, len(prompt), chunk):
            sequence.num_computed_tokens = start
            logits = self.runner.logits(self.plan([(sequence, min(chunk, len(prompt) - start))]))
        return np.array(logits[0])

    def generate(self, prompts: list[list[int]], num_tokens: int, chunk: int) -> list[list[int]]:
        """Greedy outputs of all prompts at once: prompts in chunks beside the decoding of others."""
        sequences = [self.sequence(prompt, num_tokens) for prompt in prompts]
        while running := [s for s in sequences if s.num_output_tokens < num_tokens]:
            self.step(*((s, min(chunk, s.num_uncomputed_tokens)) for s in running))
        return [s.token_ids[s.num_prompt_tokens :] for s in sequences]
