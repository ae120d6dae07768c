"""Rows for the sampler's tests, and a plain reference of what it should draw from.

The reference sorts, in float64 and one row at a time: nothing of it is shared with the sampler.
"""

from __future__ import annotations

from collections.abc import Sequence as Sized

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling import Sampler
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence

MAX_TOKENS = 10_000


def params(**options: object) -> SamplingParams:
    return SamplingParams(max_tokens=MAX_TOKENS, **options)  # type: ignore[arg-type]


def row(
    options: SamplingParams,
    *,
    name: str = "s",
    seed: int = 0,
    prompt: Sized[int] = (1,),
    output: Sized[int] = (),
    eos: Sized[int] = (),
) -> Row:
    """A row about to draw the token after ``prompt`` and ``output``."""
    sequence = Sequence(
        sequence_id=name,
        request_id="r",
        policy="continuous",
        token_ids=[*prompt, *output],
        num_prompt_tokens=len(prompt),
        params=options,
        seed=seed,
        eos_token_ids=frozenset(eos),
    )
    return Row(sequence, seat=0, start=sequence.num_tokens - 1, num_new_tokens=1)


def draws(
    sampler: Sampler, logits: NDArray[np.float32], options: SamplingParams, count: int, seed: int = 0
) -> list[int]:
    """``count`` independent draws from one row of logits: many seeds, a batch at a time."""
    tokens: list[int] = []
    for start in range(0, count, 250):
        rows = [row(options, name=str(i), seed=(seed + i) % 2**64) for i in range(start, min(start + 250, count))]
        result = sampler.sample(np.tile(logits, (len(rows), 1)), rows)
        assert not result.errors
        tokens += [result.tokens[r.sequence.sequence_id].token_id for r in rows]
    return tokens


def reference(logits: NDArray[np.float32], options: SamplingParams) -> NDArray[np.float64]:
    """The distribution that a draw should have: ``[vocab]``, sums to 1."""
    exact = logits.astype(np.float64)
    order = np.argsort(-exact, kind="stable")
    weights = np.exp((exact[order] - exact.max()) / options.temperature)  # largest first
    first = np.searchsorted(-exact[order], -exact[order])  # of the tokens tied with each: how many are strictly above
    kept = weights >= options.min_p
    if options.top_k:
        kept &= first < options.top_k
    weights = np.where(kept, weights, 0.0)
    mass_before = np.concatenate([[0.0], np.cumsum(weights)])
    weights = np.where(mass_before[first] < options.top_p * weights.sum(), weights, 0.0)
    probabilities = np.zeros(len(exact))
    probabilities[order] = weights / weights.sum()
    return probabilities
