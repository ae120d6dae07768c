"""Steps as they arrive from the worker, read back, and packed a few at a time so that thousands fit in memory.

Owns the packed form: strings are named once per pack and the rest is numbers, which then compress well, for
neighbouring steps differ little.  (64 rows and a line of 256 are 41 kB as they arrive and about 1.5 kB packed.)
Ignorant of which steps are kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from everystep.messages import StepRecord, StepRow, WaitingRow

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


class _PackedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """:class:`StepRow` with numbers for strings; 0 stands for ``None``."""

    seat: int
    sequence_id: int
    request_id: int
    phase: int
    new_tokens: int
    context_tokens: int
    finish: int


class _PackedWaiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """:class:`WaitingRow` with numbers for strings."""

    sequence_id: int
    request_id: int
    why: int
    arrival_s: float
    behind: int


class _PackedStep(msgspec.Struct, frozen=True, array_like=True):
    """:class:`StepRecord` with numbers for strings; ``waiting`` is an index into the pack's lines."""

    step: int
    policy: int
    start_s: float
    end_s: float
    shape: tuple[int, int]
    rows: list[_PackedRow]
    blocks_used: int
    blocks_total: int
    waiting: int


class _Pack(msgspec.Struct, frozen=True, array_like=True):
    """Lines come first and next to each other: each is found again in the one before."""

    lines: list[list[_PackedWaiting]]
    steps: list[_PackedStep]
    strings: list[str]  # number − 1 → string


_encoder = msgspec.msgpack.Encoder()
_pack_decoder = msgspec.msgpack.Decoder(_Pack)
_record_decoder = msgspec.msgpack.Decoder(StepRecord)
_waiting_decoder = msgspec.msgpack.Decoder(tuple[WaitingRow, ...])


def read(raw: RawStep) -> Step:
    """One step as it arrived, readable."""
    return Step(_record_decoder.decode(raw.record), _waiting_decoder.decode(raw.waiting))


def pack(raw_steps: Sequence[RawStep]) -> bytes:
    """Some neighbouring steps in few bytes."""
    return zlib.compress(_encoder.encode(_Packer().pack(raw_steps)), COMPRESSION_LEVEL)


def unpack(data: bytes) -> list[Step]:
    """What :func:`pack` was given, readable."""
    packed = _pack_decoder.decode(zlib.decompress(data))
    strings: list[str | None] = [None, *packed.strings]
    lines = [tuple(_unpack_waiting(row, strings) for row in line) for line in packed.lines]
    return [Step(_unpack_record(step, strings), lines[step.waiting]) for step in packed.steps]


class _Packer:
    """The strings and lines of one pack while it is made."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: list[list[_PackedWaiting]] = []
        self._line_indexes: dict[int, int] = {}  # identity of the arrived bytes → index in lines

    def pack(self, raw_steps: Iterable[RawStep]) -> _Pack:
        steps = [self._step(raw) for raw in raw_steps]
        return _Pack(self._lines, steps, list(self._numbers))

    def _number(self, string: str | None) -> int:
        return 0 if string is None else self._numbers.setdefault(string, len(self._numbers) + 1)

    def _step(self, raw: RawStep) -> _PackedStep:
        record = _record_decoder.decode(raw.record)
        return _PackedStep(
            record.step,
            self._number(record.policy),
            record.start_s,
            record.end_s,
            record.shape,
            [self._row(row) for row in record.rows],
            record.blocks_used,
            record.blocks_total,
            self._line(raw.waiting),
        )

    def _row(self, row: StepRow) -> _PackedRow:
        number = self._number
        return _PackedRow(
            row.seat,
            number(row.sequence_id),
            number(row.request_id),
            number(row.phase),
            row.new_tokens,
            row.context_tokens,
            number(row.finish),
        )

    def _line(self, waiting: bytes) -> int:
        """Identity is enough to find a shared line, for the caller holds the bytes while the pack is made."""
        index = self._line_indexes.get(id(waiting))
        if index is None:
            index = self._line_indexes[id(waiting)] = len(self._lines)
            self._lines.append([self._waiting(row) for row in _waiting_decoder.decode(waiting)])
        return index

    def _waiting(self, row: WaitingRow) -> _PackedWaiting:
        number = self._number
        return _PackedWaiting(
            number(row.sequence_id), number(row.request_id), number(row.why), row.arrival_s, number(row.behind)
        )


def _unpack_record(step: _PackedStep, strings: list[str | None]) -> StepRecord:
    rows = tuple(_unpack_row(row, strings) for row in step.rows)
    policy = strings[step.policy] or ""
    return StepRecord(
        step.step, policy, step.start_s, step.end_s, step.shape, rows, step.blocks_used, step.blocks_total
    )


def _unpack_row(row: _PackedRow, strings: list[str | None]) -> StepRow:
    return StepRow(
        row.seat,
        strings[row.sequence_id] or "",
        strings[row.request_id] or "",
        strings[row.phase] or "",
        row.new_tokens,
        row.context_tokens,
        strings[row.finish],
    )


def _unpack_waiting(row: _PackedWaiting, strings: list[str | None]) -> WaitingRow:
    return WaitingRow(
        strings[row.sequence_id] or "",
        strings[row.request_id] or "",
        strings[row.why] or "",
        row.arrival_s,
        strings[row.behind],
    )
