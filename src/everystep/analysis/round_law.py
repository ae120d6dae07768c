"""The static round law: N equal prompts take ceil(N ÷ B) rounds of B, and each round the same time.

Owns the law and what a round costs.  It is what the step-cost model says of a static lane whose prompts are alike; the
simulator needs no such likeness.  The last round counts as a full one, as the write-up counts it.
"""

from __future__ import annotations

from dataclasses import dataclass

from everystep.analysis.cost import CostModel
from everystep.analysis.step_work import StepWork, Widths
from everystep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Round:
    """``batch_size`` prompts of one request and one length, read in one step and then continued a token a step."""

    batch_size: int
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for name in ("batch_size", "prompt_tokens", "output_tokens"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"a round's {name}={value} must be at least 1")

    def steps(self) -> list[StepWork]:
        """What each of its steps computes; the first reads the prompts and draws the first tokens."""
        rows, prompt, widths = self.batch_size, self.prompt_tokens, Widths()
        read, pairs = rows * prompt, rows * prompt * (prompt + 1) // 2
        steps = [StepWork(rows, read, rows, 1, read, pairs, widths.is_new(read))]
        for drawn in range(1, self.output_tokens):
            context = rows * (prompt + drawn)
            steps.append(StepWork(rows, rows, rows, 1, context, context, widths.is_new(rows)))
        return steps


def round_s(cost: CostModel, one: Round) -> float:
    """T(round): seconds from the round's fill to its last finisher."""
    return sum(cost.work_s(work) for work in one.steps())


def round_law_s(num_prompts: int, cost: CostModel, one: Round) -> float:
    """ceil(N ÷ B) × T(round)."""
    return -(-num_prompts // one.batch_size) * round_s(cost, one)
