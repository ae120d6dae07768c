"""Ends a group of processes, and leaves Python's resource tracker to tidy up after them.

Owns the reading of ``/proc``.  Standard library only: it runs as a script, too, beside vLLM.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

MAX_ROUNDS = 5  # a process may start another while we look
TRACKER = b"resource_tracker"


def end_group(group: int) -> None:
    """Kill every process of the group but the caller and the tracker.

    The tracker removes the shared memory that the killed ones can't, and ends when they have.
    """
    if not Path("/proc/self/stat").exists():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        return
    for _ in range(MAX_ROUNDS):
        members = [pid for pid in members_of(group) if pid != os.getpid()]
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return


def members_of(group: int) -> Iterator[int]:
    """Living processes of the group, without the tracker."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            state, _parent, process_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            is_member = int(process_group) == group and state != "Z"
            if is_member and TRACKER not in (folder / "cmdline").read_bytes():
                yield int(folder.name)
        except (OSError, ValueError):  # it has ended meanwhile
            continue


def reap() -> None:
    """Wait until standard input is closed, which is when whoever holds its other end has died; then end the group."""
    os.read(0, 1)
    end_group(os.getpgrp())


if __name__ == "__main__":
    reap()
