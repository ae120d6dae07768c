"""Machines with made-up step times, on which a load's fate can be worked out by hand."""

from __future__ import annotations

from random import Random

from everystep.analysis.arrivals import constant, poisson
from everystep.analysis.capacity_load import LoadShape, drawn_shape
from everystep.analysis.lengths import parse_lengths
from everystep.analysis.load import Arrival
from everystep.analysis.simulator import Machine
from everystep.types import StepPlan

BLOCK = 32


def one_second(plan: StepPlan) -> float:
    """Whoever is in it, however many."""
    return 1.0


def ten_ms_a_token(plan: StepPlan) -> float:
    """No gain from company at all."""
    return 0.01 * plan.num_new_tokens


def machine(step_s: object = one_second, num_blocks: int = 10_000) -> Machine:
    return Machine(step_s, num_blocks, BLOCK, 4096)  # type: ignore[arg-type]


def steady(prompt: int, output: int, num: int = 150) -> LoadShape:
    """Equal requests like clockwork: no luck anywhere."""
    return drawn_shape(constant, parse_lengths(str(prompt)), parse_lengths(str(output)), num, [0])


def single_tokens(num: int, seeds: range) -> LoadShape:
    """Poisson arrivals, a prompt of one token, an answer of one: a step each."""
    return drawn_shape(poisson, parse_lengths("1"), parse_lengths("1"), num, seeds)


def poisson_load(rate: float, num: int, seed: int) -> list[Arrival]:
    return poisson(rate, num, parse_lengths("1"), parse_lengths("1"), Random(seed))
