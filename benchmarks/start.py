"""From process start to the first token, over HTTP, and what the two processes then hold in memory.

    python benchmarks/start.py [--repeats 5] [-- FLAGS OF everystep serve]

The first start fills the caches and isn't counted.  Resident size is split as Linux does: memory of the process's own,
and pages of mapped files (libraries, weights), which the kernel may drop.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

DEADLINE_S = 300.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_token(url: str, server: subprocess.Popen[bytes], start_s: float) -> float:
    """Seconds from ``start_s`` until a prompt's first token has come; asks again until the server takes it."""
    body = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/basic_generate", body, {"Content-Type": "application/json"})
    while time.monotonic() - start_s < DEADLINE_S:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode}")
        try:
            with urllib.request.urlopen(request) as reply:
                json.load(reply)
            return time.monotonic() - start_s
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.02)
    raise SystemExit(f"no token in {DEADLINE_S:g} s")


def resident_mb(pid: int) -> dict[str, float]:
    """Own and file-backed resident memory of a process, in MB."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {name: int(lines[key].split()[0]) * 1024 / 1e6 for name, key in (("own", "RssAnon"), ("files", "RssFile"))}


def children(pid: int) -> list[int]:
    """The worker, and multiprocessing's tracker; each stands with the thread that started it."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for words in lists for child in words.split()]


def measure(flags: list[str]) -> dict[str, Any]:
    port, start_s = free_port(), time.monotonic()
    command = [sys.executable, "-m", "everystep", "serve", "--port", str(port), "--log-level", "warning", *flags]
    server = subprocess.Popen(command)
    try:
        seconds = first_token(f"http://127.0.0.1:{port}", server, start_s)
        worker = max((resident_mb(child) for child in children(server.pid)), key=lambda memory: memory["own"])
        return {"first_token_s": seconds, "api_mb": resident_mb(server.pid), "worker_mb": worker}
    finally:
        os.kill(server.pid, signal.SIGTERM)
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("flags", nargs="*", help="of everystep serve, behind --")
    arguments = parser.parse_args()
    measure(arguments.flags)
    runs = [measure(arguments.flags) for _ in range(arguments.repeats)]
    seconds = [run["first_token_s"] for run in runs]
    print(f"first token: median {statistics.median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f}")
    for name in ("api_mb", "worker_mb"):
        own, files = (statistics.median([run[name][part] for run in runs]) for part in ("own", "files"))
        print(f"{name[:-3]}: {own:.0f} MB of its own + {files:.0f} MB of mapped files")


if __name__ == "__main__":
    main()
