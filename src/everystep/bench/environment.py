"""Where and with what figures were taken.

Owns the facts that make a figure mean something: machine, system, releases, load before the start.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from everystep.version import __version__

CPU_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "i8mm",
    "bf16",
)
LIBRARIES = ("openvino", "numpy", "httpx", "uvicorn")
GIT_DEADLINE_S = 10.0


def environment(*, now: datetime | None = None) -> dict[str, object]:
    """Facts as of now; call it before anything is started, for the load average's sake."""
    return {
        "date": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        **cpu_facts(_read("/proc/cpuinfo")),
        "cpus": os.cpu_count(),
        "usable_cpus": _usable_cpus(),
        "memory_gib": _memory_gib(_read("/proc/meminfo")),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "everystep": __version__,
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
        "git_commit": _git_commit(Path(__file__).parent),
    }


def cpu_facts(cpuinfo: str) -> dict[str, object]:
    """Name, family, model and the flags that decide how matrices are multiplied, from ``/proc/cpuinfo``."""
    pairs = [line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line]
    facts = {key.strip(): value.strip() for key, value in reversed(pairs)}  # of the first CPU
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "cpu_family": facts.get("cpu family"),
        "cpu_model": facts.get("model"),
        "cpu_mhz": facts.get("cpu MHz"),
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
    }


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory_gib(meminfo: str) -> float | None:
    total = next((line for line in meminfo.splitlines() if line.startswith("MemTotal:")), None)
    return round(int(total.split()[1]) / 2**20, 1) if total else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git_commit(folder: Path) -> str | None:
    """The commit that this source stands at, with a + where files differ from it; ``None`` where it's no checkout."""
    head, changes = (_git(folder, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno")))
    return None if not head else head + ("+" if changes else "")


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_DEADLINE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
