"""A Python that has the stand-in for vLLM, and what it writes.

Owns the environment.  The stand-in lies beside, in ``stand_in_vllm``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

FOLDER = Path(__file__).parent / "stand_in_vllm"
FIRST_TOKEN, NUM_TOKENS = 40, 50


@dataclass(frozen=True)
class StandIn:
    """``python`` for ``--vllm-python``.  Until :meth:`open_gate` its start doesn't end."""

    python: Path
    gate: Path
    params: Path

    def open_gate(self) -> None:
        self.gate.touch()


def make_stand_in(folder: Path) -> StandIn:
    """A launcher that puts the stand-in on the path of the Python that runs the tests."""
    stand_in = StandIn(folder / "python", folder / "gate", folder / "params.jsonl")
    stand_in.python.write_text(
        "#!/bin/sh\n"
        f'export PYTHONPATH="{FOLDER}" PYTHONDONTWRITEBYTECODE=1\n'
        f'export STAND_IN_GATE="{stand_in.gate}" STAND_IN_PARAMS="{stand_in.params}"\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    stand_in.python.chmod(0o755)
    return stand_in


def tokens_after(prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    """What the stand-in says, worked out here."""
    return [FIRST_TOKEN + (prompt[-1] + i) % NUM_TOKENS for i in range(num_tokens)]


def group_of(pid: int) -> list[psutil.Process]:
    """A host and all that it started."""
    host = psutil.Process(pid)
    return [host, *host.children(recursive=True)]


def are_gone(processes: list[psutil.Process]) -> bool:
    """A zombie is gone: whoever adopted it hasn't looked yet."""
    return not any(_is_alive(process) for process in processes)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
