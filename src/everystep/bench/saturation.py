"""Whether a server kept up with an open load.

Owns the criterion.  Throughput over the whole wall time would mislead: it holds the ramp at the start and the drain at
the end, so that a short run looks slow however idle the server was.  So this looks at the stretch between: open
requests (due, and not yet answered) on average in the last quarter of the arrivals' span, less those in the second.
In a queue that is stable the two are equal up to chance; in one that isn't, the difference grows with the load
(by Little's law a stable system holds rate × time in it, whatever the distributions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everystep.analysis.outcome import Answer
from everystep.bench.served import kind_of

UNSERVED_SHARE = 0.05  # of what arrived
GROWTH_FACTOR = 1.5  # linear growth from nothing makes 2.33; chance in a stable queue seldom makes this
MIN_GROWTH = 1.0  # requests
MIN_REQUESTS = 20  # fewer don't tell
REQUESTS_FAULT = ("400", "401", "403", "404", "413", "422")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``is_saturated`` is ``None`` where too few requests came, or all at once."""

    is_saturated: bool | None
    unserved_share: float | None  # of the arrivals between the two quarters, those by which the line grew
    refused_share: float  # of all, those turned away or failed under way


def judge(answers: Sequence[Answer]) -> Verdict:
    """Saturated: over 5 % of all were turned away; or the server fell behind.

    That is: over 5 % of what arrived stayed, the line grew by half, and the last answer came over 5 % of the span after
    the last arrival.  The third clears a server that had a crowd late and was through with it when the load ended.
    """
    refused_share = sum(_is_turned_away(answer) for answer in answers) / len(answers)
    span_s = answers[-1].arrival.at_s
    if len(answers) < MIN_REQUESTS or span_s <= 0:
        return Verdict(None, None, refused_share)
    second = open_requests(answers, 0.25 * span_s, 0.5 * span_s)
    last = open_requests(answers, 0.75 * span_s, span_s)
    num_between = sum(0.375 * span_s < answer.arrival.at_s <= 0.875 * span_s for answer in answers)
    growth = last - second
    unserved_share = growth / num_between if num_between else 0.0
    has_grown = growth > max(MIN_GROWTH, (GROWTH_FACTOR - 1) * second)
    is_behind = has_grown and unserved_share > UNSERVED_SHARE and _last_s(answers) > (1 + UNSERVED_SHARE) * span_s
    is_saturated = refused_share > UNSERVED_SHARE or is_behind
    return Verdict(is_saturated, unserved_share, refused_share)


def _last_s(answers: Sequence[Answer]) -> float:
    """When the last whole answer was there."""
    return max((answer.token_times_s[-1] for answer in answers if answer.error is None), default=0.0)


def _is_turned_away(answer: Answer) -> bool:
    """For want of room or time.  A request that no idle server would take either tells nothing of the load."""
    return answer.error is not None and kind_of(answer.error) not in REQUESTS_FAULT


def open_requests(answers: Sequence[Answer], begin_s: float, end_s: float) -> float:
    """Open requests on average between the two times.  One that failed wasn't open: it was turned away."""
    open_s = 0.0
    for answer in answers:
        if answer.error is None:
            overlap_s = min(end_s, answer.token_times_s[-1]) - max(begin_s, answer.arrival.at_s)
            open_s += max(0.0, overlap_s)
    return open_s / (end_s - begin_s)
