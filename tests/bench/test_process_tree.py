"""A started program ends with all that it started, however it ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from everystep.bench.peers.process_tree import end, rest

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

DEADLINE_S = 30.0
# Starts a child that would live for long and prints its number; then leaves at once, waits, or is deaf to signals.
PROGRAM = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdout=subprocess.DEVNULL)
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(child.pid, flush=True)
if sys.argv[1] != "leaves":
    time.sleep(1000)
"""


async def start(manner: str) -> tuple[asyncio.subprocess.Process, psutil.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, manner, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return process, psutil.Process(int(await process.stdout.readline()))


def has_ended(child: psutil.Process) -> bool:
    _, alive = psutil.wait_procs([child], DEADLINE_S)
    return not alive


@pytest.mark.parametrize("manner", ["waits", "deaf"])
async def test_a_program_and_its_child_end(manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everystep.bench.peers.process_tree.END_DEADLINE_S", 0.2 if manner == "deaf" else DEADLINE_S)
    process, child = await start(manner)
    await end(process)
    assert process.returncode is not None
    assert has_ended(child)


async def test_a_child_whose_parent_has_left_ends_too() -> None:
    process, child = await start("leaves")
    assert await process.wait() == 0
    assert child.is_running()
    await end(process)
    assert has_ended(child)


async def test_a_cancelled_end_kills() -> None:
    process, child = await start("deaf")
    ending = asyncio.create_task(end(process))
    await asyncio.sleep(0)  # it has asked, and waits
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert process.returncode is not None
    assert has_ended(child)


@pytest.mark.parametrize(("manner", "has_rest"), [("import time; time.sleep(1000)", True), ("while True: pass", False)])
async def test_a_tree_rests_when_it_sleeps_and_not_while_it_spins(
    manner: str, has_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everystep.bench.peers.process_tree.REST_DEADLINE_S", 30.0 if has_rest else 1.0)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", manner, start_new_session=True)
    assert await rest([process.pid]) is has_rest
    await end(process)
