"""Workers that tests act themselves: they say and leave unsaid what the test wants, over a real socket.

Owns a stage for the supervisor, which holds handles and never looks behind them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from everystep.engine.codec import WorkerStream
from everystep.engine.heartbeat import SLOTS
from everystep.engine.worker import WorkerArgs
from everystep.messages import EngineInfo

INFO = EngineInfo(
    model="m", runner="acted", precision="none", num_threads=1, block_size=4, num_blocks=64, kv_block_bytes=1,
    max_model_len=256, seats={"static": 4, "per_token": 4, "continuous": 4}, start_up_s={},
)  # fmt: skip


class ActedWorker:
    """A handle.  ``stream`` is the worker's end; One that ``dies_slowly`` has ended once ``may_end`` is set."""

    def __init__(self, args: WorkerArgs, *, is_ready: bool = True, dies_slowly: bool = False) -> None:
        self.args = args
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.stream = WorkerStream(theirs)
        self.heartbeat = [0.0] * SLOTS
        self.pid = 4_194_304 + 1  # above any process's
        self.is_killed = False
        self.may_end = threading.Event()
        if not dies_slowly:
            self.may_end.set()
        if is_ready:
            self.stream.send(INFO)

    def end(self, *last_words: Any) -> None:
        """Say the last words and close the line."""
        for word in last_words:
            self.stream.send(word)
        self.stream.close()

    def kill(self) -> None:
        self.is_killed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def join(self, timeout_s: float) -> bool:
        return self.may_end.wait(timeout_s)

    def explain(self, words: str) -> str:
        return words or "it ended without a word"
