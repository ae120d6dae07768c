"""From flags to an order: a closed load or an open one, and nothing that belongs to the other.

Owns which flags go together.  Ignorant of how flags are written down, and of what is done with an order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from everystep.analysis.outcome import Slo
from everystep.bench.closed_findings import ClosedOrder
from everystep.bench.open_order import MADE_UP, SWEEP, OpenOrder
from everystep.bench.saturation import MIN_REQUESTS
from everystep.errors import ConfigError

CLOSED_ONLY = {"sizes": "-n", "repeats": "--repeats"}
OPEN_ONLY = {
    "rate": "--rate", "dataset": "--dataset", "arrivals": "--arrivals", "num_requests": "--requests",
    "duration": "--duration", "time_scale": "--time-scale", "length_scale": "--length-scale",
    "max_requests": "--max-requests", "slo_ttft": "--slo-ttft", "slo_tpot": "--slo-tpot", "slo_e2e": "--slo-e2e",
    "past_saturation": "--past-saturation",
}  # fmt: skip
MADE_UP_ONLY = {
    "arrivals": "--arrivals", "prompt_tokens": "--prompt-tokens", "max_tokens": "--max-tokens",
    "num_requests": "--requests",
}  # fmt: skip
TRACE_ONLY = {"time_scale": "--time-scale", "length_scale": "--length-scale", "max_requests": "--max-requests"}
SWEEP_WORD = "sweep"
CLOSED_PROMPT_TOKENS = "6"
OPEN_PROMPT_TOKENS = "128"


def order_of(flags: Mapping[str, Any], given: Collection[str]) -> ClosedOrder | OpenOrder:
    """``given``: names of the flags that somebody gave.  Raises :class:`ConfigError` where they don't go together."""
    if "rate" in given or "dataset" in given:
        return _open(flags, given)
    _refuse(OPEN_ONLY, given, "is of open loads: give --rate, or --dataset FILE")
    return _closed(flags)


def _closed(flags: Mapping[str, Any]) -> ClosedOrder:
    sizes, repeats = flags["sizes"], flags["repeats"]
    if len(repeats) not in (1, len(sizes)):
        raise ConfigError(f"--repeats has {len(repeats)} numbers, -n has {len(sizes)}: give one, or one for each N")
    return ClosedOrder(
        sizes=sizes,
        repeats=repeats * len(sizes) if len(repeats) == 1 else repeats,
        prompt_tokens=_number("--prompt-tokens", flags["prompt_tokens"] or CLOSED_PROMPT_TOKENS),
        max_tokens=_number("--max-tokens", flags["max_tokens"]),
        seed=flags["seed"],
    )


def _number(flag: str, words: str) -> int:
    """A closed load's lengths are equal, so that its figures are of one kind of prompt."""
    if not words.isdecimal() or int(words) < 1:
        raise ConfigError(f"{flag} {words}: without --rate all prompts are equal: give a whole number of at least 1")
    return int(words)


def _open(flags: Mapping[str, Any], given: Collection[str]) -> OpenOrder:
    _refuse(
        CLOSED_ONLY, given, "is of closed loads, and --rate and --dataset are of open ones: give the one or the other"
    )
    if flags["dataset"] in MADE_UP:
        _refuse(TRACE_ONLY, given, f"is of traces, and --dataset {flags['dataset']} is none")
    else:
        _refuse(MADE_UP_ONLY, given, f"doesn't go with the trace {flags['dataset']}, which has its own")
    if "num_requests" in given and "duration" in given:
        raise ConfigError("--requests and --duration both say how long a load is: give one of them")
    if flags["rate"] == SWEEP_WORD:
        _check_sweep(flags["num_requests"], flags["past_saturation"])
    return OpenOrder(
        rates=parse_rates(flags["rate"]) if flags["rate"] else (),
        arrivals=flags["arrivals"],
        dataset=flags["dataset"],
        prompt_tokens=flags["prompt_tokens"] or OPEN_PROMPT_TOKENS,
        output_tokens=flags["max_tokens"],
        num_requests=flags["num_requests"],
        duration_s=flags["duration"],
        time_scale=flags["time_scale"],
        length_scale=flags["length_scale"],
        max_requests=flags["max_requests"],
        seed=flags["seed"],
        slo=Slo(flags["slo_ttft"], flags["slo_tpot"], flags["slo_e2e"]),
        past_saturation=flags["past_saturation"],
    )


def _check_sweep(num_requests: int | None, past_saturation: bool) -> None:
    """A sweep that could see no end would have none."""
    if past_saturation:
        raise ConfigError("--rate sweep ends at saturation: it doesn't go with --past-saturation")
    if num_requests is not None and num_requests < MIN_REQUESTS:
        raise ConfigError(f"--requests {num_requests}: --rate sweep needs {MIN_REQUESTS} at a rate to see saturation")


def parse_rates(words: str) -> tuple[float, ...]:
    """``1,2.5,4`` or ``sweep``; rising, each once.  Raises :class:`ConfigError` naming the value."""
    if words == SWEEP_WORD:
        return SWEEP
    try:
        rates = [float(part) for part in words.split(",")]
    except ValueError as error:
        raise ConfigError(f"--rate {words!r}: give requests a second such as 1,2.5,4, or sweep") from error
    for rate in rates:
        if not (math.isfinite(rate) and rate > 0):
            raise ConfigError(f"--rate {rate:g}: requests a second must be above 0")
    return tuple(sorted(set(rates)))


def _refuse(flags: Mapping[str, str], given: Collection[str], why: str) -> None:
    for name, flag in flags.items():
        if name in given:
            raise ConfigError(f"{flag} {why}")
