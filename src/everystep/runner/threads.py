"""How many CPUs this process may really use: its affinity, less where a cgroup's quota allows less.

Owns the reading of the cgroup files (version 2 and 1) and of a CPU's features.  Ignorant of what computes.
"""

from __future__ import annotations

import os
from pathlib import Path


def usable_cpus(affinity: int | None = None, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole CPUs, at least 1.  ``affinity`` defaults to what the scheduler lets this process run on."""
    available = affinity if affinity is not None else _affinity()
    quotas = [quota for folder in _folders(proc, cgroup) if (quota := _quota(folder)) is not None]
    return max(1, min([available, *(int(quota) for quota in quotas)]))


def cpu_features(proc: Path = Path("/proc")) -> frozenset[str]:
    """The flags of the first CPU; empty where there is no such file."""
    try:
        lines = (proc / "cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":")[1].split()) for line in lines if line.startswith("flags")), frozenset())


def cpu_name(proc: Path = Path("/proc")) -> str:
    """The first CPU's model name, as it calls itself."""
    try:
        lines = (proc / "cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _folders(proc: Path, cgroup: Path) -> list[Path]:
    """Folders that may limit us: our own group and every one above it, since the least of them rules."""
    folders = []
    for root, own in _own_groups(proc, cgroup):
        folders += [root / own, *(root / parent for parent in Path(own).parents)]
    return folders or [cgroup, cgroup / "cpu"]


def _own_groups(proc: Path, cgroup: Path) -> list[tuple[Path, str]]:
    """Mount point and own group of each CPU controller, from lines ``id:controllers:/path``."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            groups.append((cgroup, path.lstrip("/")))
        elif "cpu" in controllers.split(","):
            groups += [(cgroup / name, path.lstrip("/")) for name in ("cpu", controllers)]
    return groups


def _quota(folder: Path) -> float | None:
    """CPUs that a group may use; ``None`` where it sets no limit."""
    v2 = _words(folder / "cpu.max")  # "quota period" in microseconds, or "max period"
    if len(v2) == 2:
        return None if v2[0] == "max" else int(v2[0]) / int(v2[1])
    quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    if len(quota) == len(period) == 1 and int(quota[0]) > 0:  # -1 is no limit
        return int(quota[0]) / int(period[0])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
