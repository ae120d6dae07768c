"""SIGTERM ends a benchmark as Ctrl-C does: what it started is ended with it.

Owns the handling of that signal while a coroutine runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_signalled(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on a loop of its own.  By either signal it is cancelled, and :class:`KeyboardInterrupt` raised."""
    try:
        with asyncio.Runner() as runner:
            return runner.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """asyncio cancels the main task for SIGINT alone."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
