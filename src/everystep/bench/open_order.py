"""What an open load was asked to be, and the arrivals that makes at each rate.

Owns the defaults and what goes together.  Ignorant of contenders: all of them get the same arrivals at a rate.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from everystep.analysis.arrivals import parse_arrivals
from everystep.analysis.lengths import Lengths, parse_lengths
from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Slo
from everystep.analysis.traces import read_trace
from everystep.errors import ConfigError

MADE_UP = ("fixed", "lognormal")
SIGMA = 0.8  # of a lognormal length given by its median alone
DURATION_S = 60.0
SWEEP = tuple(0.25 * 2**step for step in range(13))  # until everybody is saturated, at 1024/s at the latest


@dataclass(frozen=True)
class OpenOrder:
    """One open benchmark.  Complete and sound once made: raises :class:`ConfigError` where it isn't."""

    rates: tuple[float, ...] = ()  # requests a second; empty: the trace's own
    arrivals: str = "poisson"
    dataset: str = "fixed"  # or lognormal, or a trace's file
    prompt_tokens: str = "128"
    output_tokens: str = "20"
    num_requests: int | None = None  # per rate
    duration_s: float | None = None
    time_scale: float = 1.0
    length_scale: float = 1.0
    max_requests: int | None = None
    seed: int = 0
    slo: Slo = field(default_factory=Slo)
    past_saturation: bool = False

    kind = "open"
    most_at_once = 1  # a full line refuses, which is an outcome

    def __post_init__(self) -> None:
        if not self.is_trace and not self.rates:
            raise ConfigError(f"--dataset {self.dataset} has no times of its own: give --rate")
        if self.is_trace and self.rates and self.time_scale != 1.0:
            raise ConfigError("--rate scales a trace's times, and so does --time-scale: give one of them")
        load = self.load(min(self.rates, default=None))
        if not self.rates:
            mean_rate(load)

    @property
    def is_trace(self) -> bool:
        return self.dataset not in MADE_UP

    def load(self, rate: float | None) -> list[Arrival]:
        """The arrivals at ``rate``; ``None`` is the trace's own.  The same for the same seed, always."""
        return self._recorded(rate) if self.is_trace else self._made_up(rate or self.rates[0])

    def _made_up(self, rate: float) -> list[Arrival]:
        num = self.num_requests or max(1, round(rate * (self.duration_s or DURATION_S)))
        rng = random.Random(self.seed)
        prompt, output = self._law(self.prompt_tokens), self._law(self.output_tokens)
        return parse_arrivals(self.arrivals)(rate, num, prompt, output, rng)

    def _law(self, words: str) -> Lengths:
        is_median = self.dataset == "lognormal" and words.strip().isdecimal()
        return parse_lengths(f"lognormal:{words},{SIGMA}" if is_median else words)

    def _recorded(self, rate: float | None) -> list[Arrival]:
        most = self.max_requests or self.num_requests
        load = read_trace(
            Path(self.dataset), time_scale=self.time_scale, length_scale=self.length_scale, max_requests=most
        )
        scale = 1.0 if rate is None else mean_rate(load) / rate
        load = [replace(arrival, at_s=arrival.at_s * scale) for arrival in load]
        return load if self.duration_s is None else [each for each in load if each.at_s <= self.duration_s]

    @property
    def slo_or_none(self) -> Slo | None:
        """``None`` where nothing is bounded: everybody would be good."""
        return None if self.slo == Slo() else self.slo

    def as_settings(self) -> dict[str, object]:
        """For the result file."""
        return asdict(self)


def mean_rate(load: Load) -> float:
    """Requests a second over the arrivals' span.  Raises :class:`ConfigError` where all come at once."""
    if len(load) < 2 or load[-1].at_s <= 0:
        raise ConfigError(f"{len(load)} requests within {load[-1].at_s:g} s have no rate")
    return (len(load) - 1) / load[-1].at_s
