"""Recorded arrivals of a real service: when, how long a prompt, how many tokens.

Owns the two file formats, told apart by the first character: JSON lines with ``timestamp`` (seconds, or ISO 8601),
``input_length``, ``output_length``; and CSV with Azure's columns ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``
(AzurePublicDataset; Patel et al., "Splitwise", ISCA 2024).  Ignorant of text: a trace holds none.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from everystep.analysis.load import Arrival
from everystep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Columns:
    """What a format calls the three."""

    time: str
    prompt: str
    output: str


AZURE = Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens")
JSONL = Columns("timestamp", "input_length", "output_length")


def read_trace(
    path: Path, *, time_scale: float = 1.0, length_scale: float = 1.0, max_requests: int | None = None
) -> list[Arrival]:
    """The trace's arrivals, earliest first, counted from the first of them.

    ``time_scale`` multiplies times: 2 is half the rate.  ``length_scale`` multiplies both lengths, rounded, at least
    1.  ``max_requests`` takes the earliest.  Raises :class:`ConfigError` with file, line and value for a bad line.
    """
    _check_scale("time_scale", time_scale)
    _check_scale("length_scale", length_scale)
    if max_requests is not None and max_requests < 1:
        raise ConfigError(f"max_requests={max_requests}: at least 1 is needed")
    arrivals = sorted(_lines(path), key=lambda arrival: arrival.at_s)[:max_requests]
    if not arrivals:
        raise ConfigError(f"{path} holds no arrival")
    start_s = arrivals[0].at_s
    return [
        Arrival(
            (arrival.at_s - start_s) * time_scale,
            max(1, round(arrival.prompt_tokens * length_scale)),
            max(1, round(arrival.output_tokens * length_scale)),
        )
        for arrival in arrivals
    ]


def _lines(path: Path) -> Iterator[Arrival]:
    """Arrivals in the file's order, at the file's own times."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} isn't a text file in UTF-8") from error
    if not text.strip():
        raise ConfigError(f"{path} is empty: no arrival is recorded")
    is_jsonl = text.lstrip().startswith("{")
    rows, columns = (_json_rows(path, text), JSONL) if is_jsonl else (_csv_rows(path, text), AZURE)
    for number, row in rows:
        place = f"{path}, line {number}"
        yield Arrival(
            _time_s(row.get(columns.time), f"{place}: {columns.time}"),
            _count(row.get(columns.prompt), f"{place}: {columns.prompt}"),
            _count(row.get(columns.output), f"{place}: {columns.output}"),
        )


Rows = Iterable[tuple[int, dict[str, Any]]]  # line number, fields by name


def _json_rows(path: Path, text: str) -> Rows:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, line {number}: {line.strip()[:40]!r} isn't an object")
        yield number, row


def _csv_rows(path: Path, text: str) -> Rows:
    reader = csv.DictReader(text.splitlines())
    lacking = {AZURE.time, AZURE.prompt, AZURE.output} - set(reader.fieldnames or ())
    if lacking:
        raise ConfigError(
            f"{path}: neither JSON lines nor a CSV with {AZURE.time}, {AZURE.prompt}, {AZURE.output} "
            f"(absent: {', '.join(sorted(lacking))})"
        )
    for row in reader:
        yield reader.line_num, row


def _time_s(value: object, place: str) -> float:
    """Seconds since whatever the trace counts from; a date without a zone is taken as UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _number_or_iso_s(value, place)
    else:
        raise ConfigError(f"{place}={value!r} is neither seconds nor an ISO date")
    if not math.isfinite(seconds):
        raise ConfigError(f"{place}={value!r} isn't finite")
    return seconds


def _number_or_iso_s(text: str, place: str) -> float:
    """A CSV's time is always text."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(f"{place}={text!r} is neither seconds nor an ISO date") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count(value: object, place: str) -> int:
    """A length as the file says it; 0 is possible there (nothing was generated) and becomes 1 later."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ConfigError(f"{place}={value!r} must be a whole number of tokens, at least 0")


def _check_scale(name: str, scale: float) -> None:
    if not (scale > 0 and math.isfinite(scale)):
        raise ConfigError(f"{name}={scale:g} must be above 0")
