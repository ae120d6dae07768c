"""An everystep server in a process of its own, started for the benchmark.

Owns its command line, its log file and the wait until it is ready.  Ignorant of what will be sent to it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from everystep.bench.passes import BenchFailed
from everystep.bench.peers.process_tree import end

READY_DEADLINE_S = 900.0  # vLLM on a slow CPU takes minutes
ASK_S = 0.1
WRITES_LOG = ["--log-level", "info"]


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is ready."""

    url: str
    pid: int
    start_s: float  # from its process's start until it was ready


def serve_command(python: str, flags: Sequence[str]) -> list[str]:
    return [python, "-m", "everystep", "serve", "--host", "127.0.0.1", *WRITES_LOG, *flags]


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without settings: a variable of the client's mustn't tune one contender.  What a server needs is a flag."""
    return {name: value for name, value in environ.items() if not name.startswith("EVERYSTEP_")}


@asynccontextmanager
async def running(
    python: str, flags: Sequence[str], log: Path, label: str, secrets: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """Start, yield once ready, end.  Its words go to ``log``; the last of them are the error if it doesn't start.

    ``secrets`` are variables that it gets beside the client's environment.
    """
    port, start_s = free_port(), time.monotonic()
    command = [*serve_command(python, flags), "--port", str(port)]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=clean_environment(os.environ) | dict(secrets or {}),
            start_new_session=True,  # a Ctrl-C is the client's, which then ends the server
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await _await_ready(url, process, log, label)
        yield Running(url, process.pid, time.monotonic() - start_s)
    finally:
        await asyncio.shield(end(process))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _await_ready(url: str, process: asyncio.subprocess.Process, log: Path, label: str) -> None:
    deadline_s = time.monotonic() + READY_DEADLINE_S
    async with httpx.AsyncClient(base_url=url, timeout=10.0, trust_env=False) as http:
        while time.monotonic() < deadline_s:
            if process.returncode is not None:
                raise BenchFailed(f"{label} didn't start (status {process.returncode}): {last_line(log)}")
            if await _is_ready(http):
                return
            await asyncio.sleep(ASK_S)
    raise BenchFailed(f"{label} wasn't ready in {READY_DEADLINE_S:g} s: {last_line(log)}")


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/health/ready")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def last_line(log: Path) -> str:
    """What it said last, which is usually why."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"nothing was said in {log}"
