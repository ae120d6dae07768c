"""Steps as they arrive from the worker, read back, and packed a few at a time so that thousands fit in memory.

Owns the packed form: each row of a waiting line once, lines as lists of places, all compressed, for neighbouring
steps differ little.  (64 rows and a line of 200 are 32 kB as they arrive and about 1.5 kB packed.)  Ignorant of which
steps are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from everystep.messages import StepRecord, WaitingRow
from everystep.observe.line_codec import cut_line, decode_line

COMPRESSION_LEVEL = 1  # packing happens between steps; higher levels cost twice the time for a tenth less


@dataclass(frozen=True, slots=True)
class RawStep:
    """A step as it arrived.  Steps with the same line share one ``waiting``."""

    step: int
    record: bytes
    waiting: bytes


@dataclass(frozen=True, slots=True)
class Step:
    """A step, readable: its record and who waited at its plan."""

    record: StepRecord
    waiting: tuple[WaitingRow, ...]


class _Pack(msgspec.Struct, frozen=True, array_like=True):
    """Steps are ``numbers``, ``records`` and ``line_of``, an index into ``lines``, which hold indexes into
    ``line_rows``."""

    numbers: list[int]
    records: list[msgspec.Raw]
    line_of: list[int]
    lines: list[list[int]]
    line_rows: list[msgspec.Raw]


_encoder = msgspec.msgpack.Encoder()
_pack_decoder = msgspec.msgpack.Decoder(_Pack)
_record_decoder = msgspec.msgpack.Decoder(StepRecord)


def read(raw: RawStep) -> Step:
    """One step as it arrived, readable."""
    return Step(_record_decoder.decode(raw.record), decode_line(cut_line(raw.waiting)))


def pack(raw_steps: Sequence[RawStep]) -> bytes:
    """Some neighbouring steps in few bytes."""
    places: dict[bytes, int] = {}  # a line's row → its place among all
    lines: dict[int, list[int]] = {}  # identity of the arrived bytes, which the caller holds meanwhile → line
    for raw in raw_steps:
        if id(raw.waiting) not in lines:
            rows = map(bytes, cut_line(raw.waiting))
            lines[id(raw.waiting)] = [places.setdefault(row, len(places)) for row in rows]
    indexes = {identity: index for index, identity in enumerate(lines)}
    packed = _Pack(
        numbers=[raw.step for raw in raw_steps],
        records=[msgspec.Raw(raw.record) for raw in raw_steps],
        line_of=[indexes[id(raw.waiting)] for raw in raw_steps],
        lines=list(lines.values()),
        line_rows=[msgspec.Raw(row) for row in places],
    )
    return zlib.compress(_encoder.encode(packed), COMPRESSION_LEVEL)


def unpack(data: bytes, since: int) -> Iterator[Step]:
    """The steps after ``since`` of what :func:`pack` was given, readable."""
    packed = _pack_decoder.decode(zlib.decompress(data))
    read_lines: dict[int, tuple[WaitingRow, ...]] = {}
    for number, record, line in zip(packed.numbers, packed.records, packed.line_of, strict=True):
        if number <= since:
            continue
        if line not in read_lines:
            read_lines[line] = decode_line(packed.line_rows[place] for place in packed.lines[line])
        yield Step(_record_decoder.decode(record), read_lines[line])
