"""Ctrl-C between steps: never within one, where it would leave a sequence half moved.

Owns the handler of SIGINT while something is generated.  Ignorant of engines.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_between_steps() -> Iterator[Callable[[], None]]:
    """Inside, Ctrl-C is kept until the given function is called, which raises ``KeyboardInterrupt``; a second isn't.

    Does nothing outside the main thread, or where the caller handles the signal otherwise: it isn't ours then.  An
    interrupt that came after the last call is raised on leaving.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: None
        return
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)

    def look() -> None:
        if came:
            came.clear()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, keep)
    try:
        yield look
        look()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
