"""Open loads, rate by rate: contenders in turn, and whoever can't keep up isn't asked for more.

Owns the order of turns, the warm-up and the stop at saturation.  Ignorant of what a contender is and of what becomes
of the figures.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from everystep.analysis.load import Arrival, Load
from everystep.bench.closed import WARM_UP_TOKENS, no_rest, order_of_turns
from everystep.bench.open_order import OpenOrder, mean_rate
from everystep.bench.passes import Contender
from everystep.bench.saturation import Verdict, judge
from everystep.bench.served import Served

WARM_UP_REQUESTS = 8


@dataclass(frozen=True, slots=True)
class OpenCell:
    """One contender at one rate."""

    contender: Contender
    rate: float  # requests a second, as asked; of a trace at its own times, the mean
    load: Load
    served: Served
    verdict: Verdict


def prompts_for(load: Load, token_ids: range, rng: random.Random) -> list[list[int]]:
    """Random ids of each arrival's length."""
    return [rng.choices(token_ids, k=arrival.prompt_tokens) for arrival in load]


def warm_up(load: Load) -> list[Arrival]:
    """The first few of a load at once, for a few tokens each."""
    return [
        Arrival(0.0, arrival.prompt_tokens, min(WARM_UP_TOKENS, arrival.output_tokens))
        for arrival in load[:WARM_UP_REQUESTS]
    ]


async def run_open(
    contenders: Sequence[Contender],
    order: OpenOrder,
    token_ids: range,
    on_turn: Callable[[str], None],
    on_skipped: Callable[[Contender, float, int], None] = lambda contender, rate, num_rates: None,
    rest: Callable[[], Awaitable[None]] = no_rest,
) -> AsyncIterator[OpenCell]:
    """Yields each contender's turn at each rate, from the lowest rate to the highest.

    All get the same arrivals and prompts at a rate; who begins moves on by one.  ``on_turn`` hears of each turn before
    it begins, ``on_skipped`` of a contender saturated at ``rate`` and how many higher ones that spares it.
    """
    left = list(contenders)
    rates: list[float | None] = [*sorted(order.rates)] or [None]
    for number, asked in enumerate(rates):
        load = order.load(asked)
        rate = mean_rate(load) if asked is None else asked
        prompts, first, first_prompts = _drawn(load, token_ids, order.seed + number)
        for contender in order_of_turns(left, number) if left else []:
            on_turn(f"{rate:g}/s: {contender.label}")
            await rest()
            await contender.serve(first, first_prompts)
            await rest()
            served = await contender.serve(load, prompts)
            verdict = judge(served.outcome.answers)
            yield OpenCell(contender, rate, load, served, verdict)
            if verdict.is_saturated and not order.past_saturation:
                left.remove(contender)
                on_skipped(contender, rate, len(rates) - number - 1)


def _drawn(load: Load, token_ids: range, seed: int) -> tuple[list[list[int]], list[Arrival], list[list[int]]]:
    """Prompts of the load, its warm-up, and that one's own prompts: no prefix cache helps anybody."""
    rng = random.Random(seed)
    first = warm_up(load)
    first_prompts = prompts_for(first, token_ids, rng)
    return prompts_for(load, token_ids, rng), first, first_prompts
