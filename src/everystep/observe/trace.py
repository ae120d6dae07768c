"""The step log as Chrome trace-event JSON, which Perfetto and chrome://tracing open.

Owns the mapping: a lane is a process, a seat a thread, a row a slice, lines and blocks are counters.  Made step by
step, so that ten thousand of them never stand in memory at once.  Ignorant of who downloads it.

Source of the format: "Trace Event Format" of the Chromium project (JSON Object Format; events X, C and M).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from everystep.messages import StepRow
from everystep.observe.step_pack import Step
from everystep.types import WaitCause

ENGINE_PID = 1
PIDS_PER_LANE = 10_000  # viewers take thread ids as unique over all processes

_encoder = msgspec.json.Encoder()
_no_waiting = dict.fromkeys((cause.value for cause in WaitCause), 0)  # viewers stack series that every event names

Event = dict[str, Any]


def trace_as_json(steps: Iterable[Step]) -> Iterator[bytes]:
    """The whole file, a piece a step."""
    writer = _TraceWriter()
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    yield _encoder.encode(_name(ENGINE_PID, None, "everystep"))
    for step in steps:
        yield b"".join(b",\n" + _encoder.encode(event) for event in writer.events(step))
    yield b"\n]}\n"


class _TraceWriter:
    """Names lanes and seats when they first appear."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}  # policy → process id
        self._named_threads: set[int] = set()

    def events(self, step: Step) -> Iterator[Event]:
        record = step.record
        if record.policy not in self._pids:
            yield from self._introduce_lane(record.policy)
        pid = self._pids[record.policy]
        ts, dur = round(record.start_s * 1e6, 1), round((record.end_s - record.start_s) * 1e6, 1)
        args = {"rows": record.shape[0], "longest": record.shape[1], "waiting": len(step.waiting)}
        yield _slice(f"step {record.step}", "step", pid, pid, ts, dur, args)
        for row in record.rows:
            tid = pid + 1 + row.seat
            if tid not in self._named_threads:
                self._named_threads.add(tid)
                yield _name(pid, tid, f"seat {row.seat}")
            yield _slice(row.sequence_id, row.phase, pid, tid, ts, dur, _row_args(row, record.step))
        yield _counter("waiting", pid, ts, _no_waiting | Counter(row.why for row in step.waiting))
        blocks = {"used": record.blocks_used, "free": record.blocks_total - record.blocks_used}
        yield _counter("blocks", ENGINE_PID, ts, blocks)

    def _introduce_lane(self, policy: str) -> Iterator[Event]:
        pid = self._pids[policy] = (len(self._pids) + 1) * PIDS_PER_LANE
        yield _name(pid, None, policy)
        yield _name(pid, pid, "steps")


def _row_args(row: StepRow, step: int) -> Event:
    return {
        "step": step,
        "request_id": row.request_id,
        "phase": row.phase,
        "new_tokens": row.new_tokens,
        "context_tokens": row.context_tokens,
        "finish": row.finish,
    }


def _slice(name: str, category: str, pid: int, tid: int, ts: float, dur: float, args: Event) -> Event:
    """``ts`` and ``dur`` in microseconds."""
    return {"name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _counter(name: str, pid: int, ts: float, series: dict[str, int]) -> Event:
    return {"name": name, "ph": "C", "pid": pid, "ts": ts, "args": series}


def _name(pid: int, tid: int | None, name: str) -> Event:
    """The name of a process, or of one of its threads."""
    if tid is None:
        return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
    return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
