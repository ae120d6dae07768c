"""What others took of the machine meanwhile.

Owns the reading of the whole machine's CPU time.  A calibration of a machine that had other work is one of another
machine: the figure stands in the file, and above a bound in a line for people.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from everystep.bench.peers.process_tree import cpu_s

STAT = Path("/proc/stat")
BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal: columns of /proc/stat (man proc_stat)
NOTED_CORES = 0.1


class OtherWork:
    """Begins when made.  ``pid`` is the server's, if it was started here."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._start_s = time.monotonic()
        self._before_s = self._others_s()

    def cores(self) -> float | None:
        """Cores that neither server nor client took, on average so far; ``None`` where nobody can know."""
        now_s = self._others_s()
        if now_s is None or self._before_s is None:
            return None
        return max(0.0, (now_s - self._before_s) / (time.monotonic() - self._start_s))

    def _others_s(self) -> float | None:
        if self._pid is None or not STAT.exists():
            return None
        return machine_cpu_s(STAT.read_text(encoding="utf-8")) - cpu_s(self._pid) - time.process_time()


def machine_cpu_s(stat: str) -> float:
    """CPU time of the whole machine so far, from ``/proc/stat``; what a hypervisor took away counts as busy."""
    ticks = [int(each) for each in stat.splitlines()[0].split()[1:]]
    return sum(ticks[place] for place in BUSY) / os.sysconf("SC_CLK_TCK")


def words(cores: float | None) -> list[str]:
    """A line where others worked enough to matter."""
    if cores is None or cores < NOTED_CORES:
        return []
    return [f"others took {cores:.2f} cores while the server was calibrated: calibrate again on a quiet machine"]
