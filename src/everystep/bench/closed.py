"""Closed loads: N prompts at once, contenders in turn, round by round.

Owns the order of turns and the prompts.  Ignorant of what a contender is and of what becomes of the figures.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from everystep.bench.passes import Contender, Pass, check

WARM_UP_TOKENS = 4  # enough to see the batch's width at prefill and at decode


@dataclass(frozen=True)
class ClosedLoad:
    """``sizes[i]`` prompts at once, ``repeats[i]`` rounds after one that isn't counted."""

    sizes: tuple[int, ...]
    repeats: tuple[int, ...]
    prompt_tokens: int
    max_tokens: int
    token_ids: range  # prompts are drawn from these
    seed: int = 0

    @property
    def num_turns(self) -> int:
        """Of one contender, the uncounted included."""
        return sum(self.repeats) + len(self.sizes)


@dataclass
class Measured:
    """The passes of one contender at one N, a pass a round."""

    contender: Contender
    n: int
    passes: list[Pass] = field(default_factory=list)

    @property
    def walls_s(self) -> list[float]:
        return [one.wall_s for one in self.passes]

    @property
    def typical(self) -> Pass:
        """The pass whose wall time is the median (the quicker of the middle two)."""
        median = statistics.median_low(self.walls_s)
        return next(one for one in self.passes if one.wall_s == median)


def fresh_prompts(rng: random.Random, token_ids: range, n: int, prompt_tokens: int) -> list[list[int]]:
    """Random ids, new each time: no prefix cache helps anybody."""
    return [rng.choices(token_ids, k=prompt_tokens) for _ in range(n)]


def order_of_turns(contenders: Sequence[Contender], round_number: int) -> list[Contender]:
    """Everybody once a round; who begins moves on by one."""
    turn = round_number % len(contenders)
    return [*contenders[turn:], *contenders[:turn]]


async def no_rest() -> None:
    """Nobody to wait for."""


async def run_closed(
    contenders: Sequence[Contender],
    load: ClosedLoad,
    on_turn: Callable[[str], None],
    rest: Callable[[], Awaitable[None]] = no_rest,
) -> AsyncIterator[list[Measured]]:
    """Yields what all contenders did at one N, N by N.

    ``on_turn`` hears of each turn before it begins.  ``rest`` is awaited between turns: an engine may go on computing,
    or spinning for the next request, when its answer is out, at the cost of whoever comes after it.
    """
    rng = random.Random(load.seed)
    for n, repeats in zip(load.sizes, load.repeats, strict=True):
        cells = {id(contender): Measured(contender, n) for contender in contenders}
        for round_number in range(-1, repeats):
            prompts = fresh_prompts(rng, load.token_ids, n, load.prompt_tokens)
            max_tokens = load.max_tokens if round_number >= 0 else min(WARM_UP_TOKENS, load.max_tokens)
            for contender in order_of_turns(contenders, round_number):
                on_turn(f"N = {n}: {contender.label}")
                await rest()
                measured = await contender.measure(prompts, max_tokens)
                check(contender, measured, n, max_tokens)
                if round_number >= 0:
                    cells[id(contender)].passes.append(measured)
        yield list(cells.values())
