"""One accepted request as its handler holds it: an async stream of deltas that aborts when it is left.

Owns the buffer between the engine's reader and the handler; whoever fills it sees to its bound.  Ignorant of where
deltas come from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType

from everystep.engine.choice import Choice
from everystep.messages import Delta


class Generation:
    """Iterate over the deltas of all choices; leaving the context aborts whatever still runs."""

    def __init__(self, request_id: str, choices: Sequence[Choice], abort: Callable[[Generation], None]) -> None:
        self.request_id = request_id
        self.choices = tuple(choices)
        self._abort = abort
        self._deltas: deque[Delta] = deque()
        self._num_open = len(choices)  # whose last delta hasn't been taken
        self._num_running = len(choices)  # whose last delta hasn't come
        self._deadline: asyncio.TimerHandle | None = None
        self._queue_deadline: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    @property
    def sequence_ids(self) -> tuple[str, ...]:
        """By index: choice ``c`` of prompt ``p`` stands at ``p * n + c``."""
        return tuple(choice.sequence_id for choice in self.choices)

    def abort(self) -> None:
        """Take back every choice that hasn't ended.  Safe to call again."""
        self._abort(self)

    @property
    def num_unread(self) -> int:
        """Deltas that came and haven't been taken."""
        return len(self._deltas)

    def put(self, delta: Delta) -> None:
        """For the engine client alone."""
        self._deltas.append(delta)
        self._news.set()
        if delta.finish_reason is not None:
            self._num_running -= 1
            if self._num_running == 0:
                self._cancel_deadlines()

    def keep_deadline(self, timer: asyncio.TimerHandle) -> None:
        """For the engine client alone: a timer that the end of the last choice takes back."""
        self._deadline = timer

    def keep_queue_deadline(self, timer: asyncio.TimerHandle) -> None:
        """For the engine client alone: a timer that the first choice's seat takes back."""
        self._queue_deadline = timer

    def note_seat(self) -> None:
        """For the engine client alone: a choice has a seat, so the request is being served."""
        if self._queue_deadline is not None:
            self._queue_deadline.cancel()
            self._queue_deadline = None

    def _cancel_deadlines(self) -> None:
        self.note_seat()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        """The next delta of any choice; the iteration ends behind the last delta of the last choice."""
        while not self._deltas:
            if self._num_open == 0:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        delta = self._deltas.popleft()
        if delta.finish_reason is not None:
            self._num_open -= 1
        return delta
