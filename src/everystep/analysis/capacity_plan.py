"""What a plan says: every figure with its unit and its definition.

Owns the shape of the answer.  Ignorant of how it is found and of how it is shown.  Rates are requests a second; a
*replica* is one server on one machine; shares go from 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from everystep.analysis.capacity_cases import WhatIf
from everystep.analysis.capacity_probe import Probe
from everystep.analysis.capacity_usage import Usage
from everystep.analysis.outcome import Slo

SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Rates:
    """What one replica takes, and what it gets."""

    offered: float  # to all replicas together
    highest: float  # of one replica: the objective still holds over all draws together
    by_draw: tuple[float, ...]  # the highest of each draw alone; how far they lie apart is the luck in the figure
    headroom: float  # share of the highest rate that is left free
    planned: float  # of one replica: highest × (1 − headroom)
    each: float  # what a replica of the planned fleet gets: offered / replicas, at most the planned rate
    saturated: float  # requests a second with everybody there at once: throughput without any objective


@dataclass(frozen=True, slots=True)
class RoundLaw:
    """The static lane's throughput by the round law, against the simulated one, with everybody there at once."""

    seats: int
    round_s: float  # mean time of a round of this load, by the step cost alone
    rate: float  # seats / round_s
    simulated_rate: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load needs."""

    policy: str
    slo: Slo  # each bound is one of the 99th percentile over all requests
    load: str  # its shape in words
    num_draws: int
    num_requests: int  # of a draw
    span_s: float  # seconds of arrivals of a draw at the planned rate
    num_rates_tried: int  # each on all draws, or one
    rates: Rates
    replicas: int  # ceil(offered / planned)
    requests_a_day_each: float  # planned × 86,400
    requests_a_day: float  # of all replicas at the planned rate
    alone: Probe  # requests that have a replica for themselves; its rate means nothing
    at_planned: Probe  # the planned rate
    above: Probe  # a tenth above the highest rate: how the objective breaks
    at_each: Probe  # what clients of the planned fleet see
    usage: Usage  # at the planned rate
    binds: str  # seats, token budget or KV blocks: whose doubling raises the rate most; compute where none does
    what_if: tuple[WhatIf, ...]  # one thing changed, the same requests
    policies: tuple[WhatIf, ...]  # the other lanes, the same requests
    round_law: RoundLaw
    notes: tuple[str, ...]  # what to be wary of


def replicas_for(offered: float, planned: float) -> int:
    """ceil(offered / planned), where a rounding error of the division makes no machine more."""
    return max(1, math.ceil(offered / planned * (1 - 1e-9)))
