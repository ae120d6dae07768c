"""One random token for each row, exactly from its distribution after min_p, top_k and top_p.

Owns the meaning of the three filters and the draw.  Ignorant of penalties, logprobs and requests.

What is kept.  All three are thresholds on the logit, so tokens with equal logits are kept or dropped together:

- ``min_p``: probability at least ``min_p`` times the likeliest one's;
- ``top_k``: fewer than ``k`` tokens are strictly likelier;
- ``top_p``: the tokens strictly likelier have, together, less than ``top_p`` of the mass that min_p and top_k left.

How it is drawn.  min_p and top_k give a row's floor at once.  For top_p no sort is needed: draw from what is above the
floor; add up the mass strictly above the drawn token; if that is below ``top_p``'s share, the token is in the nucleus
and is taken.  Else every token up to the drawn one is outside, so raise the floor to it and draw again.

Why that is exact.  Each draw is from the softmax restricted to a set that contains the whole nucleus N: the first set
does, and a raised floor drops only tokens outside N.  Restricted to a superset of N, the chance of token t given that
the draw falls in N is p(t) / p(N), whatever the superset; so the first draw that falls in N has the nucleus'
renormalised distribution, however many were turned down before.  It ends: each refusal drops at least the drawn
token, and the likeliest token, with nothing above it, is always in N.  It ends soon: the mass above a refused token is
uniform over the excess, so each refusal leaves on average half of it; about ln(1/top_p) + 1 draws in all.

Exact means: up to the rounding of float32 exponentials and of their sums over one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import NEVER, Blocks
from everystep.runner.sampling.exp_sums import ExpSums
from everystep.runner.sampling.philox import uniforms
from everystep.runner.sampling.softmax import Softmax

SMALLEST = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to draw, one entry a row in each array.  ``top_ks`` is 0 where off."""

    temperatures: NDArray[np.float64]
    top_ks: NDArray[np.intp]
    top_ps: NDArray[np.float64]
    min_ps: NDArray[np.float64]
    seeds: NDArray[np.uint64]
    positions: NDArray[np.uint64]


def draw(blocks: Blocks, recipe: Recipe, exp_sums: ExpSums) -> NDArray[np.intp]:
    """``[rows]`` token ids.  Every row's largest logit must be finite."""
    softmax = Softmax.of(blocks, recipe.temperatures, exp_sums)
    pivots = _pivots(softmax, recipe)  # [rows], what is at or below is out
    masses = _first_masses(softmax, pivots)  # [rows, blocks]
    limits = np.maximum(recipe.top_ps * masses.sum(axis=1), SMALLEST)  # [rows]
    tokens = np.empty(len(pivots), np.intp)
    rows = np.arange(len(pivots))
    for attempt in count():
        chances = uniforms(recipe.seeds[rows], recipe.positions[rows], attempt)  # [2, rows]
        tokens[rows], drawn = _pick_token(softmax, rows, pivots, masses, chances)
        is_checked = recipe.top_ps[rows] < 1.0
        rows, drawn = rows[is_checked], drawn[is_checked]
        masses = softmax.masses_above(rows, drawn)
        is_refused = masses.sum(axis=1) >= limits[rows]
        rows, pivots, masses = rows[is_refused], drawn[is_refused], masses[is_refused]
        if not len(rows):
            break
    return tokens


def _pivots(softmax: Softmax, recipe: Recipe) -> NDArray[np.float32]:
    """The largest float below each row's least kept logit, after min_p and top_k; -inf where both are off."""
    floors = np.full(len(recipe.top_ks), NEVER, np.float32)
    by_ratio = np.flatnonzero(recipe.min_ps > 0.0)
    distances = recipe.temperatures[by_ratio] * np.log(recipe.min_ps[by_ratio])
    floors[by_ratio] = softmax.tops[by_ratio] + distances
    by_rank = np.flatnonzero((recipe.top_ks > 0) & (recipe.top_ks < softmax.blocks.vocab_size))
    if len(by_rank):
        kth = softmax.blocks.kth_largest(by_rank, recipe.top_ks[by_rank])
        floors[by_rank] = np.maximum(floors[by_rank], kth)
    return np.nextafter(floors, NEVER)


def _first_masses(softmax: Softmax, pivots: NDArray[np.float32]) -> NDArray[np.float64]:
    if (pivots == NEVER).all():
        return softmax.masses()
    return softmax.masses_above(np.arange(len(pivots)), pivots)


def _pick_token(
    softmax: Softmax,
    rows: NDArray[np.intp],
    pivots: NDArray[np.float32],
    masses: NDArray[np.float64],
    chances: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """A block in proportion to its mass, then a token in it in proportion to its weight: ids and logits ``[rows]``."""
    blocks = _invert_cdf(masses, chances[0])
    values, weights = softmax.weights_above(rows, blocks, pivots)
    offsets = _invert_cdf(weights, chances[1])
    return blocks * softmax.blocks.width + offsets, values[np.arange(len(rows)), offsets]


def _invert_cdf(weights: NDArray[np.floating], chances: NDArray[np.float64]) -> NDArray[np.intp]:
    """``[rows]``: the first index whose cumulated weight exceeds the chance's share; never one of weight 0."""
    cumulated = np.cumsum(weights, axis=1, dtype=np.float64)  # [rows, n]
    picked: NDArray[np.intp] = (cumulated > (chances * cumulated[:, -1])[:, None]).argmax(axis=1)
    return picked
