"""How many replicas a load needs: the highest rate at which one keeps the objective, found on the simulator.

Owns which rates and cases are tried, and what follows from them.  Ignorant of where calibration, lengths and objective
come from, and of how a plan is shown.

Replicas share a load at random, each getting an equal part of the rate.  A Poisson load split so is Poisson again
(Kingman, *Poisson Processes*, 1993, the colouring theorem), so one replica at its part of the rate is all that has to
be simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from everystep.analysis.capacity_cases import Case, Change, WhatIf, halved_and_doubled, other_policies, what_binds
from everystep.analysis.capacity_load import LoadShape
from everystep.analysis.capacity_plan import SECONDS_A_DAY, Plan, Rates, replicas_for
from everystep.analysis.capacity_probe import Probe
from everystep.analysis.capacity_search import REACH, TOLERANCE
from everystep.analysis.capacity_trials import Trials, round_law
from everystep.analysis.outcome import Slo
from everystep.analysis.simulator import Machine
from everystep.config import Settings
from everystep.errors import ConfigError, EverystepError
from everystep.sched import check_fits

FIRST_GUESS = 0.8  # of the throughput with everybody there at once
WIDE_STRIDE = 0.25  # of a guess that may be far off
ROW_REACH = 10.0  # a change that leaves less than a tenth of the rate is called out of reach
ABOVE = 1.1  # times the highest rate: how the objective breaks
MIN_SPANS = 20.0  # a load shorter than so many of its own E2E is over before its queue has settled
WIDE_SPREAD = 0.1  # of the highest rate, between draws

Say = Callable[[str], None]


class SloOutOfReach(EverystepError):
    """No rate keeps the objective."""


def plan_capacity(
    machine: Machine,
    settings: Settings,
    shape: LoadShape,
    slo: Slo,
    offered_rate: float,
    *,
    policy: str = "continuous",
    headroom: float = 0.0,
    extra: Sequence[Change] = (),
    say: Say = lambda words: None,
) -> Plan:
    """Plan for ``offered_rate`` requests a second of ``shape``; each bound of ``slo`` is one of the 99th percentile.

    ``headroom`` (0 ≤ h < 1) of each replica stays free.  ``extra`` are further "what if" rows.  ``say`` hears of each
    row before it is computed, :func:`num_rows` times.  Raises :class:`SloOutOfReach` with the figures where no rate
    keeps the objective, and :class:`ConfigError` for a rate, a headroom or an objective that bounds nothing.
    """
    _check(offered_rate, headroom, slo)
    case = Case(settings, policy, machine)
    return _Planner(case, Trials(shape, slo), say).plan(offered_rate, headroom, extra)


def num_rows(shape: LoadShape, settings: Settings, policy: str, machine: Machine, num_extra: int = 0) -> int:
    """How often :func:`plan_capacity` calls ``say``."""
    case = Case(settings, policy, machine)
    num_draws = len(shape.draws) if len(shape.draws) > 1 else 0
    return 3 + num_draws + len(halved_and_doubled(case)) + num_extra + len(other_policies(case))


def _check(offered_rate: float, headroom: float, slo: Slo) -> None:
    if not 0 < offered_rate < math.inf:
        raise ConfigError(f"rate={offered_rate:g}: requests a second must be above 0", param="rate")
    if not 0 <= headroom < 1:
        raise ConfigError(f"headroom={headroom:g} must be at least 0 and below 1", param="headroom")
    if slo == Slo():
        raise ConfigError("an objective that bounds nothing holds at any rate", param="slo")


class _Planner:
    """One plan being made."""

    def __init__(self, case: Case, trials: Trials, say: Say) -> None:
        self.case = case
        self.trials = trials
        self.say = say

    def plan(self, offered_rate: float, headroom: float, extra: Sequence[Change]) -> Plan:
        self.say("alone")
        alone = self.trials.alone(self.case)
        if not alone.holds:
            self._check_longest()
            raise SloOutOfReach(f"no rate keeps the objective: {in_words(alone, self.trials.slo)}, for a lone request")
        rates = self._rates(offered_rate, headroom)
        what_if = self._rows([*halved_and_doubled(self.case), *extra], rates)
        policies = self._rows(other_policies(self.case), rates, stride=WIDE_STRIDE)
        self.say("at the planned rate")
        return self._plan(rates, alone, what_if, policies)

    def _check_longest(self) -> None:
        """Raises :class:`PromptTooLong` in the words of the server's door, if that is why there were refusals."""
        machine = self.case.machine
        for draw in self.trials.shape.draws:
            for one in draw:
                check_fits(
                    one.prompt_tokens,
                    one.output_tokens,
                    max_model_len=machine.max_model_len,
                    cache_tokens=machine.num_blocks * machine.block_size,
                )

    def _rates(self, offered: float, headroom: float) -> Rates:
        """What one replica takes, of all draws and of each."""
        self.say("highest rate")
        saturated = self.trials.saturated_rate(self.case)
        guess = self.trials.highest_rate(self.case, saturated * FIRST_GUESS, stride=WIDE_STRIDE, draw=0)
        highest = self.trials.highest_rate(self.case, guess or saturated * FIRST_GUESS)
        if highest == 0.0:
            lowest = self.trials.probe(self.case, saturated * FIRST_GUESS / REACH)
            words = f"{in_words(lowest, self.trials.slo)}, at {lowest.rate:.2g} requests a second"
            raise SloOutOfReach(f"no rate keeps the objective: {words}")
        by_draw = tuple(self._rate_of_draw(draw, highest) for draw in range(len(self.trials.shape.draws)))
        planned = highest * (1 - headroom)
        each = offered / replicas_for(offered, planned)
        return Rates(offered, highest, by_draw, headroom, planned, each, saturated)

    def _rate_of_draw(self, draw: int, highest: float) -> float:
        if len(self.trials.shape.draws) == 1:
            return highest
        self.say(f"draw {draw + 1}")
        return self.trials.highest_rate(self.case, highest, draw=draw)

    def _rows(self, changes: Sequence[Change], rates: Rates, stride: float = TOLERANCE) -> tuple[WhatIf, ...]:
        return tuple(self._row(change, rates, stride) for change in changes)

    def _row(self, change: Change, rates: Rates, stride: float) -> WhatIf:
        """The same requests as the plan's own, so that the ratio is the change's and not the luck's."""
        self.say(change.label)
        rate = self.trials.highest_rate(change.case, rates.highest, stride=stride, reach=ROW_REACH)
        replicas = replicas_for(rates.offered, rate * (1 - rates.headroom)) if rate else None
        return WhatIf(change.label, rate, rate / rates.highest, replicas, change.limit, change.factor)

    def _plan(self, rates: Rates, alone: Probe, what_if: tuple[WhatIf, ...], policies: tuple[WhatIf, ...]) -> Plan:
        shape = self.trials.shape
        at_planned, used = self.trials.probe_with_usage(self.case, rates.planned)
        replicas = replicas_for(rates.offered, rates.planned)
        span_s = shape.at(rates.planned)[-1].at_s
        return Plan(
            policy=self.case.policy,
            slo=self.trials.slo,
            load=shape.about,
            num_draws=len(shape.draws),
            num_requests=shape.num_requests,
            span_s=span_s,
            num_rates_tried=self.trials.num_rates,
            rates=rates,
            replicas=replicas,
            requests_a_day_each=rates.planned * SECONDS_A_DAY,
            requests_a_day=rates.planned * SECONDS_A_DAY * replicas,
            alone=alone,
            at_planned=at_planned,
            above=self.trials.probe(self.case, rates.highest * ABOVE),
            at_each=self.trials.probe(self.case, rates.each),
            usage=used,
            binds=what_binds(what_if),
            what_if=what_if,
            policies=policies,
            round_law=round_law(self.case, shape.draws[0]),
            notes=tuple(_notes(rates, at_planned, span_s)),
        )


def in_words(probed: Probe, slo: Slo) -> str:
    """What broke the objective: ``p99 of TTFT is 0.31 s, 0.2 asked``."""
    values = {"ttft": (probed.ttft_p99_s, slo.ttft_s), "tpot": (probed.tpot_p99_s, slo.tpot_s)}
    values["e2e"] = (probed.e2e_p99_s, slo.e2e_s)
    words = [
        f"p99 of {name.upper()} is {values[name][0]:.3g} s, {values[name][1]:g} asked"
        for name in probed.misses
        if name in values
    ]
    if "growth" in probed.misses:
        words.append(f"the queue grows by {probed.growth:.2g} s each second")
    return "; ".join(words)


def _notes(rates: Rates, planned: Probe, span_s: float) -> list[str]:
    """What to be wary of."""
    notes = []
    spread = (max(rates.by_draw) - min(rates.by_draw)) / rates.highest
    if spread > WIDE_SPREAD:
        notes.append(f"the draws differ by {spread:.0%}: simulate more requests")
    if len(rates.by_draw) == 1:
        notes.append("one draw: a trace says nothing of how another hour would differ")
    if span_s < MIN_SPANS * planned.e2e_p99_s:
        notes.append(
            f"{span_s:.3g} s of arrivals are short beside a p99 E2E of {planned.e2e_p99_s:.3g} s: "
            "simulate more requests"
        )
    if planned.num_refused:
        notes.append(
            f"{planned.num_refused} requests are refused at the planned rate: they never fit, or the line is full"
        )
    return notes
