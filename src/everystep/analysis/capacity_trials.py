"""One load and one objective, tried on replicas: alone, saturated, at the highest rate, with one thing changed.

Owns which simulations answer which question.  Ignorant of how many replicas follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from everystep.analysis.capacity_cases import Case
from everystep.analysis.capacity_load import MIN_REQUESTS, LoadShape
from everystep.analysis.capacity_plan import RoundLaw
from everystep.analysis.capacity_probe import Probe, holds, probe
from everystep.analysis.capacity_search import REACH, TOLERANCE, highest_rate
from everystep.analysis.capacity_usage import Usage, probe_with_usage
from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Slo
from everystep.analysis.simulator import simulate

ALONE_GAP_S = 1e6  # between lone requests
NUM_ALONE = 2 * MIN_REQUESTS
NUM_IN_ROUNDS = 400  # requests by which the round law is checked


class Trials:
    """Every question is answered on the same draws."""

    def __init__(self, shape: LoadShape, slo: Slo) -> None:
        self.shape = shape
        self.slo = slo
        self.num_rates = 0  # tried so far, over all cases

    def highest_rate(
        self, case: Case, guess: float, *, stride: float = TOLERANCE, reach: float = REACH, draw: int | None = None
    ) -> float:
        """The highest rate at which the draws together, or one of them, keep the objective; 0 where none does."""

        def holds_at(rate: float) -> bool:
            self.num_rates += 1
            return holds(case, self._loads(rate, draw), rate, self.slo)

        return highest_rate(holds_at, guess, stride, reach)

    def probe(self, case: Case, rate: float) -> Probe:
        return probe(case, self._loads(rate), rate, self.slo)

    def probe_with_usage(self, case: Case, rate: float) -> tuple[Probe, Usage]:
        return probe_with_usage(case, self._loads(rate), rate, self.slo)

    def alone(self, case: Case) -> Probe:
        """Requests that have the replica for themselves, with the load's own spread of lengths."""
        by_length = sorted(self.shape.draws[0], key=lambda arrival: (arrival.prompt_tokens, arrival.output_tokens))
        stride = max(1, len(by_length) // NUM_ALONE)
        load = [replace(arrival, at_s=index * ALONE_GAP_S) for index, arrival in enumerate(by_length[::stride])]
        return probe(case, [load], 1 / ALONE_GAP_S, self.slo)

    def saturated_rate(self, case: Case) -> float:
        """Requests a second with everybody there at once, start and end included."""
        load = at_once(self.shape.draws[0])
        return len(load) / simulate(load, case.settings, case.policy, case.machine).wall_s

    def _loads(self, rate: float, draw: int | None = None) -> Sequence[Load]:
        draws = range(len(self.shape.draws)) if draw is None else (draw,)
        return [self.shape.at(rate, number) for number in draws]


def round_law(case: Case, load: Load) -> RoundLaw:
    """The static lane's throughput from the time of its rounds, beside the simulated one.

    Rounds of B by order of arrival, each timed by itself: B / mean time of a round is the write-up's
    ceil(N/B) × T(round), turned into a rate.  The client's way in and out is in neither.
    """
    machine = replace(case.machine, submit_s=0.0, deliver_s=0.0)
    seats = case.settings.static_batch_size
    load = at_once(load[: max(1, min(len(load), NUM_IN_ROUNDS) // seats) * seats])  # whole rounds, where there is one
    rounds = [load[first : first + seats] for first in range(0, len(load), seats)]
    round_s = fmean(simulate(one, case.settings, "static", machine).wall_s for one in rounds)
    wall_s = simulate(load, case.settings, "static", machine).wall_s
    return RoundLaw(seats, round_s, len(load) / len(rounds) / round_s, len(load) / wall_s)


def at_once(load: Iterable[Arrival]) -> list[Arrival]:
    """The same requests, all at 0."""
    return [replace(arrival, at_s=0.0) for arrival in load]
