"""A waiting line as bytes and back: what the worker tells of who waits, and why.

Owns the form.  ``behind`` stands as a place in the same line where it can, so that a row stays the same bytes while
the line moves up: who packs neighbouring lines finds each row again.  Ignorant of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from everystep.messages import WaitingRow
from everystep.types import Waiting

EMPTY_LINE = b"\x90"  # an empty array


class _LineRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """:class:`WaitingRow` with a place in the line, or an id, for who goes first."""

    sequence_id: str
    request_id: str
    why: str
    arrival_s: float
    behind: int | str | None
    needs_blocks: int | None = None


_encoder = msgspec.msgpack.Encoder()
_row_decoder = msgspec.msgpack.Decoder(_LineRow)
_cutter = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_line(waiting: Sequence[Waiting]) -> bytes:
    """The line, first in line first."""
    places: dict[str | None, int] = {}
    if any(entry.behind is not None for entry in waiting):
        places = {entry.sequence.sequence_id: place for place, entry in enumerate(waiting)}
    return _encoder.encode([_row(entry, places) for entry in waiting])


def cut_line(line: bytes) -> list[msgspec.Raw]:
    """The line's rows, each as its own bytes."""
    return _cutter.decode(line)


def decode_line(rows: Iterable[msgspec.Raw]) -> tuple[WaitingRow, ...]:
    """The rows of a line, readable."""
    line = [_row_decoder.decode(row) for row in rows]
    return tuple(_readable(row, line) for row in line)


def _row(entry: Waiting, places: dict[str | None, int]) -> _LineRow:
    sequence = entry.sequence
    behind = places.get(entry.behind, entry.behind)
    return _LineRow(
        sequence.sequence_id, sequence.request_id, entry.why, sequence.arrival_s, behind, entry.needs_blocks
    )


def _readable(row: _LineRow, line: Sequence[_LineRow]) -> WaitingRow:
    behind = line[row.behind].sequence_id if isinstance(row.behind, int) else row.behind
    return WaitingRow(row.sequence_id, row.request_id, row.why, row.arrival_s, behind, row.needs_blocks)
