"""An outcome in figures: those of a benchmark run, by one definition for measured and simulated loads.

Owns which figures there are.  Ignorant of who served, and of how figures are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from everystep.analysis.outcome import Answer, Outcome, Slo
from everystep.analysis.percentiles import summary

NO_SEATS = {"working": None, "held": None, "empty": None}


def summarise(outcome: Outcome, slo: Slo | None = None) -> dict[str, Any]:
    """The figures of a run as in ``bench.json``; times in seconds, percentiles over whole answers.

    Rates count whole answers and the tokens of all.  ``goodput_per_s`` and ``slo_share`` (good ones of all that
    arrived) are ``None`` without an objective, as is any figure of which nothing was measured.
    """
    whole = [answer for answer in outcome.answers if answer.is_whole]
    return {
        "wall_s": outcome.wall_s,
        "requests_per_s": _per_s(len(whole), outcome.wall_s),
        "output_tokens_per_s": _per_s(sum(answer.num_tokens for answer in outcome.answers), outcome.wall_s),
        **_latencies(whole),
        "seat_steps": dict(outcome.seat_steps or NO_SEATS),
        "num_failed": len(outcome.answers) - len(whole),
        **_goodput(outcome, slo),
    }


def _latencies(whole: Sequence[Answer]) -> dict[str, dict[str, float | None]]:
    return {
        "ttft_s": _summary(answer.ttft_s for answer in whole),
        "tpot_s": _summary(tpot_s for answer in whole if (tpot_s := answer.tpot_s) is not None),
        "itl_s": _summary(chain.from_iterable(answer.itl_s for answer in whole)),
        "e2e_s": _summary(answer.e2e_s for answer in whole),
    }


def _summary(values: Iterable[float]) -> dict[str, float | None]:
    """Sorted once here: each percentile sorts again, which of a sorted list costs next to nothing."""
    return summary(sorted(values))


def _goodput(outcome: Outcome, slo: Slo | None) -> dict[str, float | None]:
    if slo is None:
        return {"goodput_per_s": None, "slo_share": None}
    num_good = sum(slo.is_met_by(answer) for answer in outcome.answers)
    share = num_good / len(outcome.answers) if outcome.answers else None
    return {"goodput_per_s": _per_s(num_good, outcome.wall_s), "slo_share": share}


def _per_s(count: int, wall_s: float) -> float:
    return count / wall_s if wall_s > 0 else 0.0
