"""The highest rate at which something still holds: a bracket around a guess, then bisection.

Owns the search.  Ignorant of what is asked at each rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.02  # of the rate; the luck in a 99th percentile is larger
REACH = 100.0  # times: what doesn't hold at a hundredth of the guess is out of reach


def highest_rate(
    holds: Callable[[float], bool], guess: float, stride: float = TOLERANCE, reach: float = REACH
) -> float:
    """The highest rate at which ``holds``, to :data:`TOLERANCE`; 0 where it holds nowhere down to guess / ``reach``.

    Asks at ``guess`` and then further off, first by ``stride`` of it, until the answer changes, and bisects
    geometrically.  What is returned was tried and held.  A guess that holds and a rate one stride above that doesn't
    are an answer in two questions.
    """
    low, high = _bracket(holds, guess, 1 + stride, reach)
    while low > 0.0 and high > low * (1 + TOLERANCE) * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _bracket(holds: Callable[[float], bool], guess: float, factor: float, reach: float) -> tuple[float, float]:
    """A rate that holds and a higher one that doesn't; the lower is 0 where none held, both are equal where all did."""
    rate, goes_up = guess, holds(guess)
    while guess / reach < rate < guess * reach:
        tried = rate * factor if goes_up else max(rate / factor, guess / reach)
        if holds(tried) != goes_up:
            return (rate, tried) if goes_up else (tried, rate)
        rate, factor = tried, factor**2
    return (rate, rate) if goes_up else (0.0, rate)
