"""What one step computes, in the numbers that its time depends on, and how long measured steps took.

Owns the counts: of a plan (the simulator's, the engine's) and of a step as ``/steps`` shows it.  Ignorant of prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from everystep.types import StepPlan


@dataclass(frozen=True, slots=True)
class StepWork:
    """Held seats aren't computed and don't count."""

    num_rows: int
    num_new_tokens: int
    num_sampled: int  # rows that draw a token: the model's head is computed for these alone
    num_streams: int  # requests that get a token: prompts of one request share a stream
    context_tokens: int  # keys and values that are read, each row's once
    attention_products: int  # pairs of a new token and a token that it looks at
    is_new_width: bool  # more than one new token, and not as many as in the last step of more than one


class Widths:
    """Remembers the last width.  A graph of free shapes prepares itself anew for another one.

    A step of one token has a graph of its own, so it is no such step and changes nothing for those after it.
    """

    def __init__(self) -> None:
        self._last = 0

    def is_new(self, num_new_tokens: int) -> bool:
        """Of the next step; the first wide one is new."""
        if num_new_tokens <= 1:
            return False
        is_new, self._last = num_new_tokens != self._last, num_new_tokens
        return is_new


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A measured step: what it computed, and the seconds until the next one could start."""

    work: StepWork
    seconds: float


def work_of(plan: StepPlan, widths: Widths) -> StepWork:
    """Of a plan that hasn't been applied yet, after those that ``widths`` has seen."""
    new_tokens = num_sampled = context = products = 0
    streams = set()
    for row in plan.rows:
        new, end = row.num_new_tokens, row.start + row.num_new_tokens
        new_tokens += new
        context += end
        products += end if new == 1 else _products(new, end)
        if end == len(row.sequence.token_ids):
            num_sampled += 1
            streams.add(row.sequence.request_id)
    is_new = widths.is_new(new_tokens)
    return StepWork(len(plan.rows), new_tokens, num_sampled, len(streams), context, products, is_new)


def works_of(steps: Sequence[Mapping[str, Any]]) -> list[StepWork]:
    """Of steps as ``/steps`` gives them, oldest first.

    A record doesn't say whether a row drew a token.  One that reads a prompt did unless it goes on reading in a later
    step, so the log must reach to the end of every prompt that it begins.
    """
    last_read = {
        row["sequence_id"]: step["step"] for step in steps for row in step["rows"] if row["phase"] == "prefill"
    }
    widths = Widths()
    return [_work_of_record(step, last_read, widths) for step in steps]


def timed_steps(steps: Sequence[Mapping[str, Any]]) -> list[TimedStep]:
    """Those of one lane's steps (as ``/steps`` gives them) that had work behind them, from start to next start.

    That is what a busy server pays: the pass, the worker's turn between passes, and what the API process takes of the
    cores meanwhile.  Steps after which nobody was left aren't counted: when the next one starts is the clients' choice.
    """
    return [
        TimedStep(work, later["start_s"] - step["start_s"])
        for (step, later), work in zip(pairwise(steps), works_of(steps), strict=False)
        if step["waiting"] or any(row["phase"] != "held" and row["finish"] is None for row in step["rows"])
    ]


def _work_of_record(step: Mapping[str, Any], last_read: Mapping[str, int], widths: Widths) -> StepWork:
    rows = [row for row in step["rows"] if row["phase"] != "held"]
    sampled = [row for row in rows if row["phase"] == "decode" or last_read[row["sequence_id"]] == step["step"]]
    num_new_tokens = sum(row["new_tokens"] for row in rows)
    return StepWork(
        num_rows=len(rows),
        num_new_tokens=num_new_tokens,
        num_sampled=len(sampled),
        num_streams=len({row["request_id"] for row in sampled}),
        context_tokens=sum(row["context_tokens"] for row in rows),
        attention_products=sum(_products(row["new_tokens"], row["context_tokens"]) for row in rows),
        is_new_width=widths.is_new(num_new_tokens),
    )


def _products(new: int, end: int) -> int:
    """Token ``i`` of a row looks at itself and everything before: the sum of end − new + 1 … end."""
    return new * (2 * end - new + 1) // 2
