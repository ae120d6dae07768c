"""Writes a core's schedule to a file, line by line, as it happens.

Owns the file: mode 0600, since it holds prompts; appended to, so that what an earlier server recorded stays.  Each line
is with the kernel before the core goes on, so a process that is killed leaves all but the line it was writing.
"""

from __future__ import annotations

import logging
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from everystep.errors import ConfigError
from everystep.messages import Abort, StepOutput, Submit
from everystep.observe.schedule import (
    Aborted,
    Broke,
    End,
    Header,
    HeldRow,
    Idled,
    Line,
    Planned,
    PlannedRow,
    Recorder,
    Refused,
    Stepped,
    Submitted,
    Token,
)
from everystep.sampling_params import SamplingParams
from everystep.types import StepPlan

logger = logging.getLogger(__name__)

HEADER_START = b'{"line":"header"'
MODE = 0o600

_encoder = msgspec.json.Encoder()
_DEFAULTS = SamplingParams()
_PARAM_NAMES = tuple(field.name for field in fields(SamplingParams))


def open_schedule(path: Path) -> int:
    """A file descriptor to append to.  Raises :class:`ConfigError` where that can't be, or the file is another kind."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise ConfigError(f"record={path}: can't be written: {error.strerror}", param="record") from error
    try:
        beginning = os.pread(descriptor, len(HEADER_START), 0)
        if beginning != HEADER_START[: len(beginning)]:
            raise ConfigError(f"record={path}: is a file of another kind; name a new one", param="record")
        if beginning:
            _end_last_line(descriptor)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):  # a pipe or a terminal
            raise ConfigError(f"record={path}: isn't a plain file: {error.strerror}", param="record") from error
        raise
    return descriptor


def _end_last_line(descriptor: int) -> None:
    """A writer before us may have been killed within a line."""
    size = os.fstat(descriptor).st_size
    if os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")


class ScheduleWriter(Recorder):
    """Writes down one core's schedule.  Made with the header, written at once.

    A file that can't be written any more (a full disk) ends the recording, said once; the core goes on.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self.where = str(path)
        self._descriptor: int | None = open_schedule(path)
        self._num_submitted = 0
        self._numbers: dict[str, int] = {}  # of sequences that haven't ended
        self._write(header)

    def submitted(self, message: Submit, at_s: float) -> None:
        n = self._num_submitted
        self._num_submitted += 1
        self._numbers[message.sequence_id] = n
        self._write(
            Submitted(
                n=n,
                at_s=at_s,
                arrival_s=message.arrival_s,
                sequence_id=message.sequence_id,
                request_id=message.request_id,
                lane=message.policy,
                prompt_ids=message.prompt_ids,
                params=_given(message.params),
                seed=message.seed,
                eos_token_ids=message.eos_token_ids,
                priority=message.priority,
            )
        )

    def refused(self, message: Submit, error: str) -> None:
        self._write(Refused(self._numbers.pop(message.sequence_id), error))

    def aborted(self, message: Abort, at_s: float, was_there: bool) -> None:
        self._numbers.pop(message.sequence_id, None)
        self._write(Aborted(at_s, message.sequence_id, message.reason, was_there))

    def planned(self, step: int, now_s: float, plan: StepPlan, blocks: int) -> None:
        """A sequence's ``arrival_index`` is its number: the core counts its submits as we do."""
        rows = tuple(
            [PlannedRow(row.sequence.arrival_index, row.seat, row.start, row.num_new_tokens) for row in plan.rows]
        )
        held = tuple([HeldRow(row.sequence.arrival_index, row.seat) for row in plan.held])
        self._write(Planned(step, now_s, plan.policy, rows, blocks, held))

    def stepped(self, output: StepOutput, path: str) -> None:
        numbers, events = self._numbers, output.events
        tokens = tuple([Token(numbers[event.sequence_id], event.token.token_id) for event in events if event.token])
        ends = tuple(
            [
                End(numbers.pop(event.sequence_id), event.finish_reason, event.error)
                for event in events
                if event.finish_reason is not None
            ]
        )
        self._write(Stepped(output.summary.end_s, tokens, ends, output.preempted, path))

    def idled(self, now_s: float) -> None:
        self._write(Idled(now_s))

    def broke(self, now_s: float, error: BaseException) -> None:
        self._write(Broke(now_s, f"{type(error).__name__}: {error}"))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, line: Line) -> None:
        if self._descriptor is None:
            return
        data = _encoder.encode(line) + b"\n"
        try:
            while data:  # a disk that fills up takes a part first
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            logger.error("%s can't be written any more, the recording ends: %s", self._path, error.strerror)
            self.close()


def _given(params: SamplingParams) -> dict[str, Any]:
    """How many tokens, and the parameters that aren't the default."""
    values = {name: getattr(params, name) for name in _PARAM_NAMES}
    others = {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}
    return {"max_tokens": params.max_tokens, **others}
