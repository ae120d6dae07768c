"""The step log: the last ten thousand steps and more, cheap to add to, readable by step number.

Owns which steps are remembered.  Adding keeps the bytes that arrived and reads none of them; each eighth step packs
eight.  One thread adds; what :meth:`StepLog.steps` returns may be read on any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from operator import attrgetter
from typing import Any

from everystep.messages import StepOutput
from everystep.observe.line_codec import EMPTY_LINE
from everystep.observe.step_json import page_as_json, step_as_dict
from everystep.observe.step_pack import RawStep, Step, pack, read, unpack
from everystep.observe.trace import trace_as_json

PACK_STEPS = 8  # bounds both the pause for packing and what it takes to read one step

_first_of, _last_of = attrgetter("first"), attrgetter("last")


@dataclass(frozen=True, slots=True)
class _Pack:
    first: int
    last: int
    num_steps: int
    data: bytes


class StepLog:
    """At least the last ``size`` steps, and fewer than ``PACK_STEPS`` more."""

    def __init__(self, size: int = 10_000) -> None:
        if size < 1:
            raise ValueError(f"a step log needs room for a step, got {size}")
        self.size = size
        self._packs: list[_Pack] = []  # oldest first
        self._fresh: list[RawStep] = []  # not packed yet, fewer than PACK_STEPS
        self._num_packed = 0
        self._lines: dict[str, bytes] = {}  # policy → its line as last told
        self.num_beginnings = 1  # of the numbering

    def __len__(self) -> int:
        return self._num_packed + len(self._fresh)

    @property
    def first_step(self) -> int | None:
        """The oldest step remembered; ``None`` before the first."""
        if self._packs:
            return self._packs[0].first
        return self._fresh[0].step if self._fresh else None

    @property
    def last_step(self) -> int:
        """The newest step; −1 before the first, so that every step comes after it."""
        if self._fresh:
            return self._fresh[-1].step
        return self._packs[-1].last if self._packs else -1

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is remembered, without the interpreter's share."""
        fresh = sum(len(raw.record) + len(raw.waiting) for raw in self._fresh)
        return fresh + sum(len(pack.data) for pack in self._packs)

    def append(self, output: StepOutput) -> None:
        """Remember a step.  A number not above the last one's starts the log anew: the numbering itself did."""
        summary = output.summary
        if summary.step <= self.last_step:
            self._forget_all()
        if output.waiting is not None:
            self._lines[summary.policy] = output.waiting
        self._fresh.append(RawStep(summary.step, output.record, self._lines.get(summary.policy, EMPTY_LINE)))
        if len(self._fresh) == PACK_STEPS:
            self._pack_fresh()
        self._forget_old()

    def steps(self, since: int = -1) -> Iterator[Step]:
        """The steps after ``since`` that are remembered now, oldest first.  Later additions don't touch it."""
        packs = self._packs[bisect_right(self._packs, since, key=_last_of) :]
        return _read(packs, list(self._fresh), since)

    def sample(self, since: int, through: int, num_packs: int) -> Iterator[Step]:
        """Like :meth:`steps`, but only those up to ``through``, and of many an even choice of neighbouring ones.

        Costs what ``num_packs`` packs do to read.  The packs that hold the first and the last of them are always in.
        """
        first = bisect_right(self._packs, since, key=_last_of)
        last = bisect_right(self._packs, through, key=_first_of)
        packs = self._packs[first:last]
        if len(packs) > num_packs > 1:
            packs = [packs[number * (len(packs) - 1) // (num_packs - 1)] for number in range(num_packs)]
        steps = _read(packs, list(self._fresh), since)
        return takewhile(lambda step: step.record.step <= through, steps)

    def since(self, since: int, limit: int) -> dict[str, Any]:
        """A page of the log as CONTRACT has it: up to ``limit`` steps after ``since``, and where the next begins.

        Who has more than this log (it was started anew) is sent back to its end.
        """
        newest = self.last_step
        steps = [step_as_dict(step) for step in islice(self.steps(since), limit)]
        return {"steps": steps, "next": steps[-1]["step"] if steps else min(since, newest)}

    def since_as_json(self, since: int, limit: int) -> Iterator[bytes]:
        """The same page as the text of one JSON object, some steps a piece: a page may be larger than a process."""
        return page_as_json(islice(self.steps(since), limit), min(since, self.last_step))

    def trace(self) -> Iterator[bytes]:
        """All that is remembered now, as Chrome trace-event JSON, a piece a step."""
        return trace_as_json(self.steps())

    def _pack_fresh(self) -> None:
        fresh = self._fresh
        self._packs.append(_Pack(fresh[0].step, fresh[-1].step, len(fresh), pack(fresh)))
        self._num_packed += len(fresh)
        self._fresh = []

    def _forget_old(self) -> None:
        while self._packs and len(self) - self._packs[0].num_steps >= self.size:
            self._num_packed -= self._packs.pop(0).num_steps

    def _forget_all(self) -> None:
        self._packs, self._fresh, self._num_packed = [], [], 0
        self.num_beginnings += 1


def _read(packs: list[_Pack], fresh: list[RawStep], since: int) -> Iterator[Step]:
    for packed in packs:
        yield from unpack(packed.data, since)
    yield from (read(raw) for raw in fresh if raw.step > since)
