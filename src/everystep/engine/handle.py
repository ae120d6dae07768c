"""A worker as its client holds it: a process or, for tests and notebooks, a thread.

Owns spawning and ending, and the socket pair between.  Both kinds run the very same loop.  Ignorant of messages.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Protocol

from everystep.config import Settings
from everystep.engine import heartbeat, worker
from everystep.types import Runner

SOCKET_BUFFER_BYTES = 2**20


class WorkerHandle(Protocol):
    """A started worker.  ``socket`` is the client's end; its end of file is the worker's end."""

    socket: socket.socket
    heartbeat: MutableSequence[float]

    @property
    def pid(self) -> int: ...

    def kill(self) -> None:
        """End it without asking."""

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; whether it came."""

    def explain(self, words: str) -> str:
        """Its last words, or what is known of its end where it had none."""


NO_WORDS = ""  # of a worker that ended without any
Spawn = Callable[[worker.WorkerArgs], WorkerHandle]


class WorkerProcess:
    """A spawned (never forked) process.  It ends by itself when the client's end of the socket is closed."""

    def __init__(self, args: worker.WorkerArgs) -> None:
        context = multiprocessing.get_context("spawn")
        self.socket, theirs = _socket_pair()
        self.heartbeat: MutableSequence[float] = context.RawArray("d", heartbeat.SLOTS)
        self._process = context.Process(
            target=worker.main, args=(theirs, args, self.heartbeat), name="everystep-worker", daemon=True
        )
        with _terminals_signals_blocked():
            self._process.start()
        theirs.close()  # the worker has its own copy: ours would hide its end of file

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def kill(self) -> None:
        self._process.kill()

    def join(self, timeout_s: float) -> bool:
        self._process.join(timeout_s)
        return self._process.exitcode is not None

    def explain(self, words: str) -> str:
        status = self._process.exitcode
        if words or status is None:
            return words or "its process closed the connection"
        if status >= 0:
            return f"it exited with {status}"
        hint = ", as the kernel does where memory has run out" if status == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-status).name}{hint}"


class WorkerThread:
    """The same loop in a thread of this process, with a runner of the caller's."""

    def __init__(self, args: worker.WorkerArgs, make_runner: Callable[[], Runner] | None = None) -> None:
        self.socket, self._theirs = _socket_pair()
        self.heartbeat: MutableSequence[float] = [0.0] * heartbeat.SLOTS
        self._thread = threading.Thread(
            target=worker.serve_stream,
            args=(self._theirs, args, self.heartbeat, make_runner),
            name="everystep-worker",
            daemon=True,
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        return os.getpid()

    def kill(self) -> None:
        """A thread can't be killed; closing its line ends it at the next look."""
        with contextlib.suppress(OSError):  # it has ended, and closed its end, already
            self._theirs.shutdown(socket.SHUT_RDWR)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def explain(self, words: str) -> str:
        return words or "its thread ended"


def worker_args(settings: Settings, *, epoch_s: float, first_step: int) -> worker.WorkerArgs:
    """A worker asks nobody for a key and sends none: it is told none."""
    return worker.WorkerArgs(settings.without_secrets(), epoch_s, first_step, spawned_s=time.monotonic())


@contextmanager
def _terminals_signals_blocked() -> Iterator[None]:
    """A process starts with its parent's mask: Ctrl-C, which goes to all, must not end one that is importing yet."""
    resource_tracker.ensure_running()  # it would be started within, and unblocks what we block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, worker.PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    ours.setblocking(False)
    return ours, theirs
