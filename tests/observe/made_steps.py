"""Steps made by hand, encoded as plain msgpack arrays, so that the log's readers are tested against the form itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everystep.messages import StepOutput, StepSummary, Submit
from everystep.sampling_params import SamplingParams

BLOCKS_TOTAL = 2048


def row(
    seat: int, sequence_id: str, *, phase: str = "decode", new: int = 1, context: int = 9, finish: str | None = None
) -> list[Any]:
    return [seat, sequence_id, f"request of {sequence_id}", phase, new, context, finish]


def waiting(
    sequence_id: str,
    why: str = "no_seat",
    arrival_s: float = 0.0,
    behind: int | str | None = None,
    needs_blocks: int | None = None,
) -> list[Any]:
    """``behind`` as a place in the line, or as an id."""
    return [sequence_id, f"request of {sequence_id}", why, arrival_s, behind, needs_blocks]


def output(
    step: int,
    *,
    rows: Sequence[list[Any]] = (),
    line: Sequence[list[Any]] | None = (),
    policy: str = "continuous",
    start_s: float | None = None,
    step_s: float = 0.04,
    num_seats: int = 4,
    started: Sequence[str] = (),
    preempted: Sequence[str] = (),
    num_prefix_hit_tokens: int = 0,
    blocks_used: int = 12,
) -> StepOutput:
    """One step as it leaves the worker; step ``n`` starts at ``n`` tenths of a second unless told otherwise."""
    start_s = step / 10 if start_s is None else start_s
    working = [one for one in rows if one[3] != "held"]
    longest = max((one[4] for one in rows), default=0)
    end_s = start_s + step_s
    record = [step, policy, start_s, end_s, [len(working), longest], list(rows), blocks_used, BLOCKS_TOTAL]
    summary = StepSummary(
        step=step,
        policy=policy,
        start_s=start_s,
        end_s=end_s,
        num_working=len(working),
        num_held=len(rows) - len(working),
        num_empty=num_seats - len(rows),
        num_new_tokens=sum(one[4] for one in rows),
        num_waiting=len(line or ()),
        num_preemptions=len(preempted),
        num_prefix_hit_tokens=num_prefix_hit_tokens,
        blocks_used=blocks_used,
        blocks_total=BLOCKS_TOTAL,
    )
    encode = msgspec.msgpack.encode
    encoded_line = None if line is None else encode(list(line))
    return StepOutput(summary, encode(record), encoded_line, tuple(started), tuple(preempted))


def submit(sequence_id: str, *, request_id: str = "r", policy: str = "continuous", arrival_s: float = 0.0) -> Submit:
    """A sequence with a prompt of three tokens."""
    return Submit(sequence_id, request_id, policy, (5, 6, 7), SamplingParams(), 0, (), 0, arrival_s)
