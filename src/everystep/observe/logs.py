"""How the package logs: lines for people, or one JSON object a line.

Owns the format and the handler, on standard error.  A line holds the time, level, logger, message, process and
request id, and nothing else that a caller may have attached: prompts and keys have no way in but the message.  The
list of accesses, which there is at debug, is without the part of an address in which somebody may send a key.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

ACCESSES = "uvicorn.access"
LOGGERS = ("everystep", "uvicorn")  # the package and the server under it; other libraries' are left alone

_request_id: ContextVar[str | None] = ContextVar("everystep_request_id", default=None)


@contextlib.contextmanager
def logging_request(request_id: str) -> Iterator[None]:
    """Lines logged inside bear ``request_id``."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


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
    """``12:31:07.204 INFO everystep.engine message [request]``"""

    def format(self, record: logging.LogRecord) -> str:
        request_id = _request_id_of(record)
        line = f"{_clock(record)} {record.levelname:<7} {record.name} {record.getMessage()}"
        line = f"{line} [{request_id}]" if request_id else line
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
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _request_id_of(record: logging.LogRecord) -> str | None:
    """``extra={"request_id": …}`` goes before the context's."""
    request_id: str | None = getattr(record, "request_id", None)
    return request_id if request_id is not None else _request_id.get()


def _clock(record: logging.LogRecord) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(record.created))}.{int(record.msecs):03d}"


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"
