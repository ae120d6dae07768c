"""Reads a recorded schedule back, turn by turn.

Owns the grouping of lines into turns, what a well-formed file is, and that a file cut short is still good for all that
stands before the cut.  Reads as it goes: a recording of hours needn't fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from everystep.errors import ConfigError, EverystepError
from everystep.observe.schedule import (
    SCHEMA,
    Aborted,
    Broke,
    Header,
    Idled,
    Line,
    Planned,
    Refused,
    Stepped,
    Submitted,
)

Input = Submitted | Refused | Aborted

_decoder = msgspec.json.Decoder(Line)


@dataclass(frozen=True, slots=True)
class Turn:
    """One look of the core at its lanes, with what arrived before it and, where a pass ran, during it.

    ``ran`` is ``None`` at the end of a recording that saw arrivals and no look after them.  ``result`` is ``None``
    where nothing ran, or where the process ended within the pass; it is a :class:`Broke` where applying failed.
    """

    before: tuple[Input, ...] = ()
    ran: Planned | Idled | Broke | None = None
    during: tuple[Input, ...] = ()
    result: Stepped | Broke | None = None
    line_number: int = 0  # of ``ran``, else of the last input


@dataclass(slots=True)
class _Open:
    """A turn in the making."""

    before: list[Input] = field(default_factory=list)
    plan: Planned | None = None
    during: list[Input] = field(default_factory=list)
    line_number: int = 0

    def take(self, line: Input, number: int) -> None:
        if self.plan is None:
            self.before.append(line)
            self.line_number = number
        else:
            self.during.append(line)

    def turn(self, ran: Idled | Broke | None = None, result: Stepped | Broke | None = None) -> Turn:
        return Turn(tuple(self.before), ran or self.plan, tuple(self.during), result, self.line_number)


def read_schedule(path: Path) -> Iterator[Header | Turn]:
    """A header, its turns, the next core's header, its turns, and so on.

    Raises :class:`ConfigError`, naming file and line, for what no recording can hold.  A line that its writer didn't
    end is left out.
    """
    try:
        with path.open("rb") as file:
            yield from _Reader(path).read(file)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from error


class _Reader:
    """One file being read: which numbers are known, and the turn in the making."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0  # of the line
        self._num_submitted = -1  # below 0: no header yet
        self._open = _Open()

    def read(self, file: BinaryIO) -> Iterator[Header | Turn]:
        cut: ConfigError | None = None  # a line that can't be read is well where nothing of its core follows
        for data in file:
            self._number += 1
            try:
                line = _decoder.decode(data)
            except msgspec.MsgspecError as error:
                if cut is not None or self._num_submitted < 0:
                    raise cut or self._wrong(f"is no line of a recording: {error}") from error
                cut = self._wrong(str(error))
                continue
            if cut is not None and not isinstance(line, Header):
                raise cut
            cut = None
            yield from self._take(line)
        yield from self._flush()
        if self._num_submitted < 0:
            raise ConfigError(f"{self._path}: is empty: no schedule was recorded")

    def _take(self, line: Line) -> Iterator[Header | Turn]:
        if isinstance(line, Header):
            yield from self._flush()
            yield self._checked_header(line)
        elif self._num_submitted < 0:
            raise self._wrong("stands before any header")
        elif isinstance(line, Submitted | Refused | Aborted):
            self._check_input(line)
            self._open.take(line, self._number)
        elif isinstance(line, Planned):
            self._check_plan(line)
            self._open.plan, self._open.line_number = line, self._number
        else:
            yield self._ended(line)

    def _ended(self, line: Stepped | Idled | Broke) -> Turn:
        opened, self._open = self._open, _Open()
        if opened.plan is None:
            if isinstance(line, Stepped):
                raise self._wrong("is a step without a plan")
            opened.line_number = self._number
            return opened.turn(ran=line)
        if isinstance(line, Idled):
            raise self._wrong(f"is within the pass of step {opened.plan.step}")
        return opened.turn(result=line)

    def _flush(self) -> Iterator[Turn]:
        """What the core before didn't come to the end of."""
        opened, self._open = self._open, _Open()
        if opened.plan is not None or opened.before:
            yield opened.turn()

    def _checked_header(self, header: Header) -> Header:
        if header.schema != SCHEMA:
            raise self._wrong(f"is of schema {header.schema}; this everystep reads schema {SCHEMA}")
        self._num_submitted = 0
        return header

    def _check_input(self, line: Input) -> None:
        if not isinstance(line, Submitted):
            return
        if line.n != self._num_submitted:
            raise self._wrong(f"submits number {line.n}, but the next is {self._num_submitted}")
        self._num_submitted += 1
        try:
            line.message()
        except (EverystepError, msgspec.MsgspecError) as error:
            raise self._wrong(f"has parameters that can't be: {error}") from error

    def _check_plan(self, line: Planned) -> None:
        if self._open.plan is not None:
            raise self._wrong(f"plans while step {self._open.plan.step} is open")
        for n in [row.n for row in line.rows] + [row.n for row in line.held]:
            if not 0 <= n < self._num_submitted:
                raise self._wrong(f"has a row of number {n}, but {self._num_submitted} were submitted")

    def _wrong(self, words: str) -> ConfigError:
        return ConfigError(f"{self._path}, line {self._number}: {words}")
