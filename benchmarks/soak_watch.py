"""Looks at the server every second: do its numbers balance, does it get on, what does it hold?

Owns the samples, and a thread of its own, so that a busy client's event loop isn't taken for the server's.  Ignorant of
what is sent.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil
from soak_requests import LANES
from soak_server import Server

SAMPLE_S = 1.0
LIVE_ASKS = 4  # /health/live between two samples
TIMEOUT_S = 60.0
LINE = re.compile(r"^(everystep_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
OUTCOMES = ("stop", "length", "aborted", "failed", "timeout")
MIB = 2**20

Numbers = Mapping[str, float]


def read_numbers(text: str) -> Numbers:
    """``/metrics`` by name and labels, as they stand there: ``everystep_requests_total{policy="static",…}``."""
    return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in LINE.findall(text)}


def labelled(numbers: Numbers, name: str, **labels: str) -> float:
    wanted = {f'{label}="{value}"' for label, value in labels.items()}
    return sum(value for key, value in numbers.items() if key.startswith(f"{name}{{") and wanted <= _labels(key))


def _labels(key: str) -> set[str]:
    return set(key[key.index("{") + 1 : -1].split(","))


def longest_step_s(numbers: Numbers) -> float:
    """The bound of the last bucket that holds a step: no step took longer."""
    name = "everystep_step_seconds_bucket"
    counts = {float(_bound(key)): value for key, value in numbers.items() if key.startswith(f"{name}{{")}
    return min((bound for bound, value in counts.items() if value == max(counts.values())), default=0.0)


def _bound(key: str) -> str:
    return key.partition('le="')[2].partition('"')[0].replace("+Inf", "inf")


def num_open(numbers: Numbers) -> float:
    return labelled(numbers, "everystep_num_requests_running") + labelled(numbers, "everystep_num_requests_waiting")


@dataclass(frozen=True)
class Held:
    """What a process holds.  ``uss_mib``: memory that would be freed if it ended."""

    pid: int
    uss_mib: float
    rss_mib: float
    num_fds: int
    num_threads: int


@dataclass(frozen=True)
class Sample:
    at_s: float
    is_ready: bool
    num_open: int
    num_steps: int
    server: Held | None
    worker: Held | None


@dataclass
class Watch:
    """``is_hurt`` says whether the worker is dead, stopped or starting, so that no step is due."""

    server: Server
    violate: Callable[[str, str], None]
    is_hurt: Callable[[], bool]
    samples: list[Sample] = field(default_factory=list)
    live_s: list[float] = field(default_factory=list)  # latencies of /health/live
    worst_stall_s: float = 0.0  # without a step, though work waits and nobody hurt the worker
    worst_hurt_stall_s: float = 0.0
    num_unready: int = 0  # samples that weren't ready, though nobody hurt the worker
    last: Numbers = field(default_factory=dict)
    _going_since_s: float = 0.0  # the last time that it got on, or had nothing to do
    _was_hurt: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._going_since_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="soak-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        while not self._stop.is_set():
            try:
                self._look(connection)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not self._stop.is_set():
                    self.violate("the watch couldn't look", f"{type(error).__name__}: {error}")
                    self._stop.wait(SAMPLE_S)
        connection.close()

    def _look(self, connection: http.client.HTTPConnection) -> None:
        for _ in range(LIVE_ASKS):
            began_s = time.monotonic()
            self._get(connection, "/health/live")
            self.live_s.append(time.monotonic() - began_s)
            self._stop.wait(SAMPLE_S / LIVE_ASKS)
        status, text = self._get(connection, "/metrics")
        if status != http.client.OK:
            self.violate("the watch couldn't look", f"/metrics: {status}")
            return
        numbers = read_numbers(text)
        self._balance(numbers)
        is_ready = self._get(connection, "/health/ready")[0] == http.client.OK
        self._take(numbers, is_ready)
        self.last = numbers

    def _get(self, connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
        connection.request("GET", path, headers=self.server.headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()

    def _balance(self, numbers: Numbers) -> None:
        """accepted = ended + running + waiting in each lane, and no counter ever falls."""
        for lane in LANES:
            accepted = labelled(numbers, "everystep_requests_accepted_total", policy=lane)
            parts = {
                name: labelled(numbers, "everystep_requests_total", policy=lane, outcome=name) for name in OUTCOMES
            }
            parts |= {
                state: labelled(numbers, f"everystep_num_requests_{state}", policy=lane)
                for state in ("running", "waiting")
            }
            if accepted != sum(parts.values()):
                self.violate("scrapes that don't balance", f"{lane}: {accepted:g} accepted, but {parts}")
        for key, value in self.last.items():
            if key.startswith("everystep_process_") and 'process="worker"' in key:
                continue  # the system's count of one process; the next worker's begins anew
            if ("_total" in key or "_bucket" in key or "_count" in key) and numbers.get(key, -1) < value:
                self.violate("counters that fall", f"{key}: {value:g}, then {numbers.get(key)}")

    def _take(self, numbers: Numbers, is_ready: bool) -> None:
        now_s, is_hurt = time.monotonic(), self.is_hurt()
        steps, is_open = int(numbers["everystep_step_seconds_count"]), num_open(numbers) > 0
        had_steps = self.samples[-1].num_steps if self.samples else steps
        if not is_open or steps > had_steps or is_hurt != self._was_hurt:
            self._going_since_s = now_s
        stall_s = now_s - self._going_since_s
        if is_hurt:
            self.worst_hurt_stall_s = max(self.worst_hurt_stall_s, stall_s)
        else:
            self.worst_stall_s = max(self.worst_stall_s, stall_s)
            self.num_unready += not is_ready
        self._was_hurt = is_hurt
        worker = self.server.worker_pid()
        held = held_by(self.server.pid), held_by(worker) if worker else None
        self.samples.append(Sample(now_s, is_ready, int(num_open(numbers)), steps, *held))


def held_by(pid: int) -> Held | None:
    """``None`` where the process has just ended."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_full_info()
            return Held(pid, memory.uss / MIB, memory.rss / MIB, process.num_fds(), process.num_threads())
    return None
