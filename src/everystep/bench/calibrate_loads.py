"""The loads that a calibration drives: together they cover narrow and wide steps, short and long texts, and mixtures.

Owns which.  Sized by the server's limits and by its speed, so that all of them take less than a minute on a slow
machine and a few seconds on a quick one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from everystep.analysis.arrivals import poisson
from everystep.analysis.lengths import parse_lengths
from everystep.analysis.load import Arrival, Load

NOMINAL_TOKENS_PER_S = 250.0  # prefill speed at which the sizes below make about 40 s
PREFILLS = (16, 40, 100, 200, 450)
NARROW_ROWS = 12
PROMPT, OUTPUT = parse_lengths("lognormal:40,0.7"), parse_lengths("lognormal:14,0.5")
NUM_OPEN, OPEN_RATE = 24, 2.4  # a little less than the nominal machine can take


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the loads: the server's own limits and how quickly it reads a prompt."""

    max_num_seqs: int
    max_model_len: int
    tokens_per_s: float

    @property
    def speed(self) -> float:
        """Of the nominal machine's."""
        return self.tokens_per_s / NOMINAL_TOKENS_PER_S

    def arrival(self, at_s: float, prompt_tokens: float, output_tokens: float) -> Arrival:
        """Shorter on a slow machine, and within the context."""
        scale = min(1.0, self.speed)
        output = max(3, round(output_tokens * scale))
        output = min(output, self.max_model_len - 1)
        return Arrival(at_s, max(1, min(round(prompt_tokens * scale), self.max_model_len - output)), output)


@dataclass(frozen=True, slots=True)
class Portion:
    """One load for one lane, and in a word what it is for."""

    policy: str
    name: str
    load: Load
    is_one_request: bool = False  # all prompts in one body, and their tokens in one stream


def portions(policies: tuple[str, ...], limits: Limits, rng: random.Random) -> Iterator[Portion]:
    """The most telling first: who has no more time leaves out the last."""
    widest = "continuous" if "continuous" in policies else policies[0]
    yield Portion(widest, "narrow decode", [limits.arrival(0, 40, 4 + 3 * i) for i in range(NARROW_ROWS)])
    for tokens in PREFILLS:
        yield Portion(widest, f"prefill of {tokens}", [limits.arrival(0, tokens, 4)])
    if widest == "continuous":
        falling = [limits.arrival(0, 8, 4 + i // 4) for i in range(limits.max_num_seqs)]
        yield Portion(widest, "wide decode", falling)
        for num_rows in (limits.max_num_seqs, min(NARROW_ROWS, limits.max_num_seqs)):
            yield Portion(widest, "one request", [limits.arrival(0, 8, 8)] * num_rows, is_one_request=True)
        yield Portion(widest, "arrivals", _open(limits, rng))
    for policy in policies:
        if policy != "continuous":
            mixed = [limits.arrival(0, rng.randint(5, 60), rng.randint(4, 16)) for _ in range(10)]
            yield Portion(policy, "mixed lengths", mixed)
    yield Portion(widest, "deep decode", [limits.arrival(0, 400, 12)] * 3)
    yield Portion(widest, "long prompt", [limits.arrival(0, 1000, 6)])


def _open(limits: Limits, rng: random.Random) -> list[Arrival]:
    drawn = poisson(OPEN_RATE * limits.speed, NUM_OPEN, PROMPT, OUTPUT, rng)
    return [limits.arrival(one.at_s, one.prompt_tokens, one.output_tokens) for one in drawn]
