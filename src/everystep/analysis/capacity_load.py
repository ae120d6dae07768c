"""A load of a fixed shape at any rate: the same requests, squeezed or stretched in time.

Owns what "rate" means for a load and how it is varied.  Ignorant of what serves it and of where requests come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from everystep.analysis.arrivals import Process
from everystep.analysis.lengths import Lengths
from everystep.analysis.load import Arrival, Load
from everystep.errors import ConfigError

MIN_REQUESTS = 100  # of fewer, a 99th percentile is the worst one
STRATUM = 20  # lengths drawn for each that is taken


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Draws of one and the same kind of load, each at one request a second on average.

    Every rate that is tried gets the same draws (common random numbers): what differs between two rates, or between
    two settings, is the rate or the setting and not the luck.  Several draws show how much luck there is.
    """

    draws: tuple[tuple[Arrival, ...], ...]
    about: str  # in words, for the report

    def at(self, rate: float, draw: int = 0) -> list[Arrival]:
        """The draw's requests at ``rate`` a second."""
        return [replace(arrival, at_s=arrival.at_s / rate) for arrival in self.draws[draw]]

    @property
    def num_requests(self) -> int:
        """Of the shortest draw."""
        return min(map(len, self.draws))

    @property
    def mean_prompt_tokens(self) -> float:
        return fmean(arrival.prompt_tokens for draw in self.draws for arrival in draw)

    @property
    def mean_output_tokens(self) -> float:
        return fmean(arrival.output_tokens for draw in self.draws for arrival in draw)


def drawn_shape(
    process: Process, prompt: Lengths, output: Lengths, num: int, seeds: Sequence[int], name: str = "open"
) -> LoadShape:
    """A made-up load: a draw of ``num`` requests for each seed.  Lengths are :class:`Stratified`."""
    loads = []
    for seed in seeds:
        rng = Random(seed)
        prompts, outputs = Stratified(prompt, num, rng), Stratified(output, num, rng)
        loads.append(process(1.0, num, prompts, outputs, rng))
    return load_shape(loads, f"{name} arrivals, prompts {prompt}, answers {output}")


class Stratified:
    """As many lengths as there are requests, in the law's own proportions; which comes when is chance.

    Every :data:`STRATUM`-th of a larger sorted sample, shuffled (stratified sampling; Owen, *Monte Carlo theory,
    methods and examples*, ch. 8).  How many of 1,000 prompts are very long is then no luck, and it is mostly the
    longest that make a 99th percentile.
    """

    def __init__(self, lengths: Lengths, num: int, rng: Random) -> None:
        self._lengths = lengths
        sample = sorted(lengths.draw(rng) for _ in range(num * STRATUM))
        self._left = sample[STRATUM // 2 :: STRATUM]
        rng.shuffle(self._left)

    def draw(self, rng: Random) -> int:
        """The next; all have been drawn after ``num``."""
        return self._left.pop()

    def mean(self) -> float:
        return self._lengths.mean()

    def __str__(self) -> str:
        return str(self._lengths)


def rate_of(load: Load) -> float:
    """Requests a second: those after the first instant, over the time from it to the last.

    Not ``len(load)`` over the span: of n evenly spaced requests there are n − 1 gaps, and of bursts one gap less than
    there are bursts.  Raises :class:`ConfigError` where all come at once.
    """
    first_s, last_s = load[0].at_s, load[-1].at_s
    if not last_s > first_s:
        raise ConfigError(f"a load whose {len(load)} requests all come at once has no rate to plan for")
    return sum(arrival.at_s > first_s for arrival in load) / (last_s - first_s)


def load_shape(loads: Sequence[Load], about: str) -> LoadShape:
    """The loads as draws of one shape, whatever their own rates are.

    A draw is brought to a mean rate of exactly one, so that the luck of its gaps doesn't pass for a higher rate.
    Raises :class:`ConfigError` where one is too short for a 99th percentile.
    """
    for load in loads:
        if len(load) < MIN_REQUESTS:
            raise ConfigError(f"{len(load)} requests are too few for a 99th percentile: at least {MIN_REQUESTS}")
    return LoadShape(tuple(_at_unit_rate(load) for load in loads), about)


def _at_unit_rate(load: Load) -> tuple[Arrival, ...]:
    rate, first_s = rate_of(load), load[0].at_s
    return tuple(replace(arrival, at_s=(arrival.at_s - first_s) * rate) for arrival in load)
