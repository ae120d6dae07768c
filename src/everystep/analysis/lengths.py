"""How long prompts and answers are: one number, a range, or a log-normal law.

Owns the words in which a length is asked for (``128``, ``uniform:10,200``, ``lognormal:200,1.0,2000``) and the draw.
Ignorant of what the lengths are of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Protocol

from everystep.errors import ConfigError

MAX_TOKENS = 2**31 - 1
MAX_SIGMA = 10.0
FORMS = "128, fixed:128, uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA[,MAX]"


class Lengths(Protocol):
    """A law of lengths in tokens.  ``str`` of it gives words that :func:`parse_lengths` reads as the same law."""

    def draw(self, rng: Random) -> int:
        """A length of at least 1."""

    def mean(self) -> float:
        """The expected length."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    tokens: int

    def draw(self, rng: Random) -> int:
        return self.tokens

    def mean(self) -> float:
        return float(self.tokens)

    def __str__(self) -> str:
        return str(self.tokens)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number from ``low`` to ``high``, both included, is equally likely."""

    low: int
    high: int

    def draw(self, rng: Random) -> int:
        return rng.randint(self.low, self.high)

    def mean(self) -> float:
        return (self.low + self.high) / 2

    def __str__(self) -> str:
        return f"uniform:{self.low},{self.high}"


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The logarithm is normal: half are below ``median``; ``sigma`` is the natural logarithm's standard deviation.

    Longer draws than ``most`` become ``most``.
    """

    median: float
    sigma: float
    most: int | None = None

    def draw(self, rng: Random) -> int:
        drawn = rng.lognormvariate(math.log(self.median), self.sigma)
        return max(1, round(min(drawn, self.most or MAX_TOKENS)))

    def mean(self) -> float:
        """E[min(X, most)] of the law; that draws are rounded, and at least 1, isn't counted.

        Without a cap exp(μ + σ²/2).  With one, the share of that which lies below it, and the cap times the share of
        draws above (Johnson, Kotz, Balakrishnan, *Continuous Univariate Distributions* 1, ch. 14: partial moments).
        """
        mu, whole = math.log(self.median), self.median * math.exp(self.sigma**2 / 2)
        if self.most is None:
            return whole
        if self.sigma == 0.0:
            return min(self.median, self.most)
        place = (math.log(self.most) - mu) / self.sigma
        share_below = NormalDist().cdf
        return whole * share_below(place - self.sigma) + self.most * (1 - share_below(place))

    def __str__(self) -> str:
        cap = "" if self.most is None else f",{self.most}"
        return f"lognormal:{self.median:.15g},{self.sigma:.15g}{cap}"


def parse_lengths(words: str) -> Lengths:
    """The law that ``words`` ask for.  Raises :class:`ConfigError` naming the value and its limit."""
    name, _, rest = words.strip().partition(":")
    if not rest and name.isdecimal():
        name, rest = "fixed", name
    parts = [part.strip() for part in rest.split(",")] if rest else []
    match name, parts:
        case "fixed", [tokens]:
            return Fixed(_tokens(tokens, words))
        case "uniform", [low, high]:
            return _uniform(_tokens(low, words), _tokens(high, words), words)
        case "lognormal", [median, sigma]:
            return _lognormal(median, sigma, None, words)
        case "lognormal", [median, sigma, most]:
            return _lognormal(median, sigma, _tokens(most, words), words)
    raise ConfigError(f"lengths {words!r}: give {FORMS}")


def _uniform(low: int, high: int, words: str) -> Uniform:
    if high < low:
        raise ConfigError(f"lengths {words!r}: HIGH={high} is below LOW={low}")
    return Uniform(low, high)


def _lognormal(median: str, sigma: str, most: int | None, words: str) -> LogNormal:
    middle = _number(median, "MEDIAN", 1.0, MAX_TOKENS if most is None else most, words)
    return LogNormal(middle, _number(sigma, "SIGMA", 0.0, MAX_SIGMA, words), most)


def _tokens(text: str, words: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"lengths {words!r}: {text!r} isn't a whole number of tokens")
    return int(_number(text, "a length", 1, MAX_TOKENS, words))


def _number(text: str, name: str, low: float, high: float, words: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"lengths {words!r}: {name}={text!r} isn't a number") from error
    if not low <= value <= high:
        raise ConfigError(f"lengths {words!r}: {name}={text} must be from {low:g} to {high:g}")
    return value
