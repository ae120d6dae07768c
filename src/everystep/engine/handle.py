"""A worker as its client holds it: a process or, for tests and notebooks, a thread.

Owns spawning and ending, and the socket pair between.  Both kinds run the very same loop.  Ignorant of messages.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, MutableSequence
from typing import Protocol

from everystep.config import Settings
from everystep.engine import worker
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


Spawn = Callable[[worker.WorkerArgs], WorkerHandle]


class WorkerProcess:
    """A spawned (never forked) process.  It ends by itself when the client's end of the socket is closed."""

    def __init__(self, args: worker.WorkerArgs) -> None:
        context = multiprocessing.get_context("spawn")
        self.socket, theirs = _socket_pair()
        self.heartbeat: MutableSequence[float] = context.RawArray("d", worker.HEARTBEAT_SLOTS)
        self._process = context.Process(
            target=worker.main, args=(theirs, args, self.heartbeat), name="everystep-worker", daemon=True
        )
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


class WorkerThread:
    """The same loop in a thread of this process, with a runner of the caller's."""

    def __init__(self, args: worker.WorkerArgs, make_runner: Callable[[], Runner] | None = None) -> None:
        self.socket, self._theirs = _socket_pair()
        self.heartbeat: MutableSequence[float] = [0.0] * worker.HEARTBEAT_SLOTS
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


def worker_args(settings: Settings, *, epoch_s: float, first_step: int) -> worker.WorkerArgs:
    return worker.WorkerArgs(settings, epoch_s, first_step, spawned_s=time.monotonic())


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    ours.setblocking(False)
    return ours, theirs
