"""An open load once it has been served: what became of each request, and how well the client kept the schedule.

Owns the kinds of failure.  In an open load a refusal is an outcome and is counted: a server that turns people away at
its door isn't measured by the others alone.  Ignorant of how requests were sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from everystep.analysis.outcome import Answer, Outcome
from everystep.bench.passes import BenchFailed

CONNECTION, BROKEN, FAILED = "connection", "broken", "failed"  # beside these, a status such as 429


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no whole answer."""

    kind: str  # an HTTP status, or one of the three above; no colon in it
    words: str

    def __str__(self) -> str:
        """As it stands in :attr:`Answer.error`."""
        return f"{self.kind}: {self.words}"


@dataclass(frozen=True, slots=True)
class Client:
    """The client's own part, from the load's start to its last answer."""

    cpu_s: float
    lags_s: tuple[float, ...] = ()  # by request: from when it was due until the client turned to it; empty: no client


@dataclass(frozen=True, slots=True)
class Served:
    """One contender's turn at one rate."""

    outcome: Outcome
    client: Client
    num_prompt_tokens: int | None = None  # of whole answers, as the server counted; None where it doesn't
    steps: tuple[dict[str, Any], ...] | None = None  # the server's step log meanwhile, where it was asked for


def failures(served: Served) -> dict[str, int]:
    """How many requests failed, by kind."""
    return dict(Counter(kind_of(answer.error) for answer in served.outcome.answers if answer.error is not None))


def kind_of(error: str) -> str:
    """The kind in an answer's error."""
    return error.partition(":")[0]


def check_answers(label: str, answers: tuple[Answer, ...]) -> None:
    """Like with like: who was answered got all the tokens that were asked for.  Failures are outcomes, this is none."""
    for answer in answers:
        if answer.error is None and not answer.is_whole:
            raise BenchFailed(
                f"{label} made {answer.num_tokens} tokens of {answer.arrival.output_tokens}: not like with like"
            )
