"""A step in the shape that ``/steps`` shows.

Owns that shape.  Ignorant of where steps come from and of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from everystep.messages import WaitingRow
from everystep.observe.step_pack import Step

STEPS_PER_PIECE = 8

_encoder = msgspec.json.Encoder()
_as_dict = msgspec.structs.asdict


def step_as_dict(step: Step) -> dict[str, Any]:
    """CONTRACT's record of one step."""
    record = step.record
    return {
        "step": record.step,
        "policy": record.policy,
        "start_s": record.start_s,
        "end_s": record.end_s,
        "shape": list(record.shape),
        "rows": [_as_dict(row) for row in record.rows],
        "waiting": [_waiting_as_dict(row, record.start_s) for row in step.waiting],
        "blocks_used": record.blocks_used,
        "blocks_total": record.blocks_total,
    }


def step_as_json(step: Step) -> bytes:
    """The same as one line of JSON."""
    return _encoder.encode(step_as_dict(step))


def page_as_json(steps: Iterator[Step], next_if_empty: int) -> Iterator[bytes]:
    """``{"steps": […], "next": int}`` in pieces of a few steps; ``next`` is the last step's number."""
    last, separator = next_if_empty, b'{"steps":['
    while batch := list(islice(steps, STEPS_PER_PIECE)):
        yield separator + b",".join(map(step_as_json, batch))
        last, separator = batch[-1].record.step, b","
    opening = separator if separator != b"," else b""
    yield opening + b'],"next":%d}' % last


def _waiting_as_dict(row: WaitingRow, at_s: float) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "sequence_id": row.sequence_id,
        "request_id": row.request_id,
        "why": row.why,
        "behind": row.behind,
        "waited_s": round(max(0.0, at_s - row.arrival_s), 6),
    }
    if row.needs_blocks is not None:
        shown["needs_blocks"] = row.needs_blocks
    return shown
