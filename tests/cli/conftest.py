"""Commands run within the tests' process: what they would leave to their own process's end is put back."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

from everystep.observe.logs import LOGGERS


@pytest.fixture(autouse=True)
def handlers_of_signals_are_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def loggers_are_put_back() -> Iterator[None]:
    """Theirs write into what a test captured, which is closed by then, and pass nothing on."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
