"""Timers of a connection: what a client may take to send a request, to take in what it is sent, and to stay idle.

Owns one timer a state, never one an event: streams are the hot path.  Ignorant of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """A timer that is set anew for each state of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, delay_s: float, act: Callable[[], None]) -> None:
        """Instead of what was set before."""
        self.clear()
        self._timer = self._loop.call_later(delay_s, self._fire, act)

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, act: Callable[[], None]) -> None:
        self._timer = None
        act()


class WriteStall:
    """The watch on a client that is sent more than it takes in: every ``timeout_s`` something must have left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        timeout_s: float,
        give_up: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._deadline = Deadline(loop)
        self._num_bytes = 0

    def start(self) -> None:
        """There are bytes that the client doesn't take."""
        if not self._deadline.is_set:
            self._num_bytes = self._transport.get_write_buffer_size()
            self._deadline.set(self._timeout_s, self._look)

    def stop(self) -> None:
        self._deadline.clear()

    def _look(self) -> None:
        before = self._num_bytes
        if 0 < before <= self._transport.get_write_buffer_size():
            self._give_up()
        elif self._transport.get_write_buffer_size():
            self.start()
