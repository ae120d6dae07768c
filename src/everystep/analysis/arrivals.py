"""Who comes when: independently (Poisson), like clockwork, or in bursts.

Owns the times of a made-up open load.  Ignorant of servers.  The times of one seed at another rate are the same times
scaled, with the same lengths: two rates then differ by their rate alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from everystep.analysis.lengths import Lengths
from everystep.analysis.load import Arrival
from everystep.errors import ConfigError

Process = Callable[[float, int, Lengths, Lengths, Random], list[Arrival]]
"""``(rate, num, prompt, output, rng)`` → ``num`` arrivals at ``rate`` a second on average."""

FORMS = "poisson, constant or burst:SIZE"


def poisson(rate: float, num: int, prompt: Lengths, output: Lengths, rng: Random) -> list[Arrival]:
    """Independent arrivals: gaps are exponential, the first counted from the load's start."""
    return burst(rate, num, prompt, output, rng, size=1)


def constant(rate: float, num: int, prompt: Lengths, output: Lengths, rng: Random) -> list[Arrival]:
    """Equal gaps; the first comes at 0."""
    _check(rate, num)
    return _with_lengths((index / rate for index in range(num)), prompt, output, rng)


def burst(rate: float, num: int, prompt: Lengths, output: Lengths, rng: Random, *, size: int) -> list[Arrival]:
    """``size`` at once, Poisson between such groups, so that the mean rate is ``rate``.  The last may be smaller."""
    _check(rate, num)
    if size < 1:
        raise ConfigError(f"burst size={size}: at least 1 is needed")
    return _with_lengths(_group_times(rate / size, num, size, rng), prompt, output, rng)


def parse_arrivals(words: str) -> Process:
    """``poisson``, ``constant`` or ``burst:SIZE``.  Raises :class:`ConfigError` naming the value."""
    name, colon, size = words.strip().partition(":")
    if name == "burst" and size.isdecimal() and int(size) >= 1:
        return partial(burst, size=int(size))
    if not colon and name in ("poisson", "constant"):
        return {"poisson": poisson, "constant": constant}[name]
    raise ConfigError(f"arrivals {words!r}: give {FORMS}, SIZE at least 1")


def _group_times(rate: float, num: int, size: int, rng: Random) -> Iterable[float]:
    """Drawn lazily, between the lengths' draws: a longer load begins with the shorter one of the same seed."""
    at_s = 0.0
    for index in range(num):
        if index % size == 0:
            at_s += rng.expovariate(1.0) / rate
        yield at_s


def _with_lengths(times: Iterable[float], prompt: Lengths, output: Lengths, rng: Random) -> list[Arrival]:
    return [Arrival(at_s, prompt.draw(rng), output.draw(rng)) for at_s in times]


def _check(rate: float, num: int) -> None:
    if not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"rate={rate:g}: requests a second must be above 0")
    if num < 1:
        raise ConfigError(f"{num} requests: at least 1 is needed")
