"""Work too long for the event loop: in a thread, where the loop gets its turns between.

Owns where too long begins.  Ignorant of what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

LONG = 4_000  # characters read, ids, or tokens shown; from here on, the work takes longer than handing it over
T = TypeVar("T")


async def off_loop_if_long(size: int, work: Callable[[], T]) -> T:
    """What ``work`` gives, which must be safe to run in another thread."""
    return work() if size < LONG else await asyncio.to_thread(work)
