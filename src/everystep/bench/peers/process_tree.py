"""A started program with all its descendants: how much CPU it takes, when it is quiet, and that it ends.

Owns the reading of ``/proc`` and the signals.  Ignorant of what the program does.  Without ``/proc`` a tree is the
program alone and nobody knows whether it is quiet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

PROC = Path("/proc")
END_DEADLINE_S = 40.0  # above everystep's own drain deadline
QUIET_CORES = 0.05
SAMPLE_S = 0.5
QUIET_SAMPLES = 2
QUIET_DEADLINE_S = 60.0
REST_CORES = 0.1  # above what any known engine takes while idle
REST_SAMPLE_S = 0.3
REST_DEADLINE_S = 15.0


def descendants(pid: int) -> list[int]:
    """``pid`` and every process below it, as of now."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _parents() -> dict[int, int]:
    return {pid: int(fields[1]) for pid, fields in _all_fields()}


def session(leader: int) -> set[int]:
    """Every process of the session that ``leader`` began: also those whose parents have gone, as a library's may."""
    return {pid for pid, fields in _all_fields() if int(fields[3]) == leader}


def _all_fields() -> Iterator[tuple[int, list[str]]]:
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            yield int(path.parent.name), _fields(path)


def _fields(stat: Path) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the third on: the second, a name, may hold spaces."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """CPU time of the tree so far, without what has ended in it."""
    ticks = 0
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, _fields(PROC / str(each) / "stat")[11:13]))  # utime, stime
    return ticks / os.sysconf("SC_CLK_TCK")


async def settle(pid: int) -> float | None:
    """Wait until the tree is quiet; cores that it takes then.  ``None`` where nobody can know.

    A server may still compile in the background after its first answer.  One that never gets quiet is left at the
    deadline, and what it takes is for the report: it slows its neighbours.
    """
    if not (PROC / str(pid) / "stat").exists():
        return None
    cores, num_quiet = 0.0, 0
    for _ in range(int(QUIET_DEADLINE_S / SAMPLE_S)):
        cores = await _busiest_cores([pid], SAMPLE_S)
        num_quiet = num_quiet + 1 if cores < QUIET_CORES else 0
        if num_quiet == QUIET_SAMPLES:
            break
    return cores


async def rest(pids: Sequence[int]) -> bool:
    """Wait until none of the trees computes or spins; whether that came before the deadline."""
    if not pids:
        return True
    for _ in range(int(REST_DEADLINE_S / REST_SAMPLE_S)):
        if await _busiest_cores(pids, REST_SAMPLE_S) < REST_CORES:
            return True
    return False


async def _busiest_cores(pids: Sequence[int], sample_s: float) -> float:
    """Cores that the busiest of the trees takes for the next ``sample_s`` seconds."""
    before_s = [cpu_s(pid) for pid in pids]
    await asyncio.sleep(sample_s)
    return max([0.0, *((cpu_s(pid) - was_s) / sample_s for pid, was_s in zip(pids, before_s, strict=True))])


async def end(process: asyncio.subprocess.Process) -> None:
    """Ask a session's leader to end.  Whatever is left of its tree and session then, or at the deadline, is killed."""
    tree = set(descendants(process.pid)) if process.returncode is None else set()
    try:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(END_DEADLINE_S):
                await process.wait()
    except TimeoutError:
        logger.warning("process %d didn't end in %g s: killed", process.pid, END_DEADLINE_S)
    finally:
        if process.returncode is None:
            process.kill()
        left = (tree & _parents().keys()) | session(process.pid)
        for pid in left - {process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()
