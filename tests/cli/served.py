"""``everystep serve`` as a process for tests: started, asked, ended, and nothing left behind.

Owns the process.  Ignorant of what is tested.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
DEADLINE_S = 60.0


class Server:
    """``everystep serve`` on a free port, with the tiny model and the fake runner."""

    def __init__(self, process: subprocess.Popen[str], tmp_path: Path) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = self._read_url()
        self.children = psutil.Process(process.pid).children(recursive=True)
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE_S)

    def _read_url(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"at (http://\S+):", line):
                return found[1]
        raise AssertionError("the server never got ready:\n" + "".join(self.lines))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Ask until it is so; each question is a round trip, so this doesn't spin."""
        for _ in range(10_000):
            if is_so():
                return
        raise AssertionError("it never came to be so")

    def num_waiting(self) -> int:
        text = self.client.get("/metrics").text
        found = re.search(r'^everystep_num_requests_waiting\{policy="static"\} (\S+)$', text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def end(self) -> tuple[int, str]:
        """Exit status and all that was said."""
        assert self.process.stderr is not None
        rest = self.process.stderr.read()
        status = self.process.wait(DEADLINE_S)
        _, alive = psutil.wait_procs(self.children, DEADLINE_S)
        assert alive == [], "no orphan remains"
        return status, "".join(self.lines) + rest


def command(*flags: str) -> list[str]:
    fixed = ["--model", str(TINY), "--runner", "fake", "--kv-cache-gib", "0.001"]
    return [sys.executable, "-m", "everystep", "serve", *fixed, *flags]


def environment(tmp_path: Path) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("EVERYSTEP_")}
    return outside | {"PYTHONPATH": str(ROOT / "src"), "EVERYSTEP_CACHE_DIR": str(tmp_path)}


@contextmanager
def serving(tmp_path: Path, *flags: str) -> Iterator[Server]:
    process = subprocess.Popen(
        command("--port", "0", *flags), stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    try:
        server = Server(process, tmp_path)
        yield server
        server.client.close()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)


def refuse(tmp_path: Path, *flags: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        command(*flags), capture_output=True, text=True, env=environment(tmp_path), timeout=DEADLINE_S
    )
    return done.returncode, done.stderr.splitlines()
