"""How the package logs: lines for people, or one JSON object a line.

Owns the format and the handler, on standard error.  A line holds the time, level, logger, message, process and
request id, in JSON the ids of trace and span too, and nothing else that a caller may have attached: prompts and keys
have no way in but the message.  The list of accesses, which there is at debug, is without the part of an address in
which somebody may send a key.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

ACCESSES = "uvicorn.access"
# The package, the server under it, and what sends its traces; other libraries' are left alone.
LOGGERS = ("everystep", "uvicorn", "opentelemetry")


@dataclass(frozen=True, slots=True)
class _Names:
    """What the lines of a request bear; hexadecimal where it is traced."""

    request_id: str
    trace_id: str | None
    span_id: str | None


_names: ContextVar[_Names | None] = ContextVar("everystep_request", default=None)


@contextlib.contextmanager
def logging_request(request_id: str, *, trace_id: str | None = None, span_id: str | None = None) -> Iterator[None]:
    """Lines logged inside, and in tasks and threads begun inside, bear ``request_id`` and the ids of its span."""
    token = _names.set(_Names(request_id, trace_id, span_id))
    try:
        yield
    finally:
        _names.reset(token)


def configure_logging(*, level: str = "info", as_json: bool = False) -> None:
    """Log to standard error from ``level`` on.  Calling it again replaces what the last call set."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    accesses = logging.getLogger(ACCESSES)
    accesses.filters = [WithoutQuery()]
    # A uvicorn that was configured in this process, with a level or without a list of accesses, leaves these cut off.
    accesses.handlers, accesses.propagate = [], True
    accesses.setLevel(logging.NOTSET)


class WithoutQuery(logging.Filter):
    """Cuts what follows the ``?`` from addresses in a record's arguments."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                f"{arg.partition('?')[0]}?..." if isinstance(arg, str) and "?" in arg else arg for arg in record.args
            )
        return True


class LineFormatter(logging.Formatter):
    """``12:31:07.204 INFO everystep.engine message [request]``; without the request where the message names it."""

    def format(self, record: logging.LogRecord) -> str:
        request_id, message = _request_id_of(record), record.getMessage()
        line = f"{_clock(record)} {record.levelname:<7} {record.name} {message}"
        line = f"{line} [{request_id}]" if request_id and request_id not in message else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object, on one line whatever the message holds."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if request_id := _request_id_of(record):
            fields["request_id"] = request_id
        fields |= _span_of(record)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _request_id_of(record: logging.LogRecord) -> str | None:
    """``extra={"request_id": …}`` goes before the context's."""
    request_id: str | None = getattr(record, "request_id", None)
    if request_id is not None:
        return request_id
    names = _names.get()
    return names.request_id if names is not None else None


def _span_of(record: logging.LogRecord) -> dict[str, str]:
    """By the names that OpenTelemetry's data model of logs gives them."""
    names = _names.get()
    if names is None or names.trace_id is None or names.span_id is None or hasattr(record, "request_id"):
        return {}
    return {"trace_id": names.trace_id, "span_id": names.span_id}


def _clock(record: logging.LogRecord) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
