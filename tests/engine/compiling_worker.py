"""A worker process with a thread that never ends, and a runner that waits for it when it is closed.

Owns a stand-in for a library that compiles in the background.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import MutableSequence

from everystep.engine import worker
from everystep.runner.fake import FakeRunner


def main(sock: socket.socket, args: worker.WorkerArgs, heartbeat: MutableSequence[float]) -> None:
    compiling = threading.Thread(target=threading.Event().wait)
    compiling.start()
    FakeRunner.close = lambda self: compiling.join()  # type: ignore[method-assign]
    real_main(sock, args, heartbeat)


real_main = worker.main
