"""Memory, CPU time and open files of the server's processes, from the system's own account of them.

Owns the names ``everystep_process_*``.  They are those of every Prometheus client, with the product's name before them
and a label for which process: out of memory, the kernel ends the worker, so its memory is what an operator watches.
What a process has used is the system's count of that process: a new worker's begins at zero, as a rate expects.
Empty where the system has no ``/proc``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class Processes(Collector):
    """By what each does, such as ``worker``, the process's number; ``None`` where there is none at the moment.

    One that does two things is told of once, as the first of them.
    """

    def __init__(self, pids: Mapping[str, int | None]) -> None:
        by_pid: dict[int, str] = {}
        for process, pid in pids.items():
            if pid is not None:
                by_pid.setdefault(pid, process)
        self._pids = {process: pid for pid, process in by_pid.items()}

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for process, pid in self._pids.items():
            for one in ProcessCollector("everystep", pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                family = families.setdefault(one.name, Metric(one.name, one.documentation, one.type))
                for sample in one.samples:
                    family.add_sample(sample.name, {"process": process}, sample.value)
        yield from families.values()
