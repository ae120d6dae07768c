"""The server under test: its process, its worker's process, and the signals that both are sent.

Owns the command line, the log file and the end.  Ignorant of traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil

from everystep.bench.peers.everystep_server import clean_environment, free_port, last_line
from everystep.bench.peers.process_tree import session

READY_DEADLINE_S = 300.0
ASK_S = 0.05
END_DEADLINE_S = 120.0
ORPHAN_S = 10.0
KEPT_VARIABLES = ("EVERYSTEP_CACHE_DIR",)


class Server:
    """``everystep serve`` in a session of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, key: str, log: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {key}"}
        self.pid = process.pid
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, flags: Sequence[str], key: str, log: Path) -> Server:
        """Start and wait until it is ready.  Raises :class:`SystemExit` with its last words."""
        port = free_port()
        command = [sys.executable, "-m", "everystep", "serve", "--port", str(port), "--api-key", key, *flags]
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=clean_environment(os.environ) | kept,
                start_new_session=True,  # a Ctrl-C is the soak's, which then ends the server
            )
        server = cls(process, port, key, log)
        deadline_s = time.monotonic() + READY_DEADLINE_S
        while not await server.is_ready():
            if process.returncode is not None or time.monotonic() > deadline_s:
                server.kill()
                raise SystemExit(f"the server didn't start (status {process.returncode}): {last_line(log)}")
            await asyncio.sleep(ASK_S)
        return server

    async def is_ready(self) -> bool:
        """As ``/health/ready`` says on a fresh connection; the event loop isn't held."""
        try:
            async with httpx.AsyncClient(base_url=self.url, timeout=10.0, trust_env=False) as http:
                return (await http.get("/health/ready")).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def worker_pid(self) -> int | None:
        """The spawned process that computes; ``None`` while there is none."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if any("spawn_main" in word for word in child.cmdline()) and child.status() != "zombie":
                        return int(child.pid)
        return None

    def signal_worker(self, number: signal.Signals) -> bool:
        """Whether there was a worker to be sent the signal."""
        pid = self.worker_pid()
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def wait_end(self) -> int | None:
        """Exit status; ``None`` where it doesn't end in :data:`END_DEADLINE_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_DEADLINE_S):
                return await self._process.wait()
        return None

    async def orphans(self) -> list[str]:
        """Processes of the server's session that outlive it for long: Python's own helpers end a moment later."""
        for _ in range(int(ORPHAN_S / ASK_S)):
            if not session(self.pid) - {self.pid}:
                return []
            await asyncio.sleep(ASK_S)
        return [_command_of(pid) for pid in sorted(session(self.pid) - {self.pid})]

    def kill(self) -> None:
        """The whole session, without asking."""
        for pid in session(self.pid) | {self.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _command_of(pid: int) -> str:
    try:
        return f"{pid} {' '.join(psutil.Process(pid).cmdline())}"
    except psutil.Error:
        return str(pid)
