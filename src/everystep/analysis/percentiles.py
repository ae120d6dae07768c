"""Percentiles, medians, ratios within a round.

Owns the definitions.  Ignorant of what the numbers mean.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the sorted values lie, interpolated linearly between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p95 and p99; ``None`` each where nothing was measured (no gap between tokens where there is one token)."""
    return {name: percentile(values, share) if values else None for name, share in PERCENTILES.items()}


def paired_ratio(base: Sequence[float], mine: Sequence[float]) -> float:
    """Median over rounds of ``base / mine`` within the round: what the machine does to both cancels."""
    return statistics.median(theirs / ours for theirs, ours in zip(base, mine, strict=True))
