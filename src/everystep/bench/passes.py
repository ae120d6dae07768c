"""What one contender did with one set of prompts: the pass, and what a client felt of it.

Owns the arithmetic from arrival times to TTFT, TPOT, ITL and E2E.  Ignorant of how the times were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from everystep.analysis.load import Load
from everystep.errors import EverystepError

if TYPE_CHECKING:
    from everystep.bench.served import Served

SEAT_STATES = ("working", "held", "empty")


class BenchFailed(EverystepError):
    """A contender didn't start, ended, refused, or did other work than it was given: no figure, but an error."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One set of prompts, sent at once and answered whole.  Times are seconds since it was sent."""

    wall_s: float  # until the last answer was whole
    num_tokens: int  # generated, as the contender counted
    arrivals_s: tuple[tuple[float, ...], ...]  # per prompt: when a piece of its answer came
    client_cpu_s: float  # of this process meanwhile
    seat_steps: dict[str, int] | None = None  # by state; None where the engine has no such seats
    steps: tuple[dict[str, Any], ...] | None = None  # the server's step log meanwhile, where it was asked for


class Contender(Protocol):
    """An engine under one policy, ready to be measured."""

    engine: str
    policy: str
    label: str  # for tables
    about: str  # what computes, in which precision

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        """A closed load: all prompts at once, as one request where the server takes that."""

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        """An open load, each prompt when its arrival is due.  Returns once everything sent has ended."""


def check(contender: Contender, measured: Pass, num_prompts: int, max_tokens: int) -> None:
    """Like with like: every prompt must have got all its tokens.  No answer is longer, so the sum tells."""
    expected = num_prompts * max_tokens
    if measured.num_tokens != expected:
        raise BenchFailed(f"{contender.label} made {measured.num_tokens} tokens of {expected}: not like with like")
    silent = sum(not times for times in measured.arrivals_s)
    if len(measured.arrivals_s) != num_prompts or silent:
        raise BenchFailed(f"{contender.label} left {silent} of {num_prompts} prompts without an answer")


def ttft_s(measured: Pass) -> list[float]:
    """Per prompt: until its first text came."""
    return [times[0] for times in measured.arrivals_s]


def e2e_s(measured: Pass) -> list[float]:
    """Per prompt: until its last text came."""
    return [times[-1] for times in measured.arrivals_s]


def itl_s(measured: Pass) -> list[float]:
    """Gaps between neighbouring arrivals, of all prompts; the wait for the first isn't one."""
    return [later - earlier for times in measured.arrivals_s for earlier, later in pairwise(times)]


def tpot_s(measured: Pass, max_tokens: int) -> list[float]:
    """Per prompt: seconds per token after the first."""
    if max_tokens == 1:
        return []
    return [(times[-1] - times[0]) / (max_tokens - 1) for times in measured.arrivals_s]
