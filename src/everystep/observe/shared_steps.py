"""The newest steps as JSON, made once for all who read them live.

Owns the few that are kept for that.  Reading a step and encoding it costs a viewer a tenth of a millisecond to a whole
one, with a long line; five viewers of one server would pay it five times.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from everystep.observe.step_json import step_as_json
from everystep.observe.step_log import StepLog

MAX_KEPT = 16  # steps: who reads live reads the newest; with a long line they are 50 kB each


class SharedSteps:
    """Of one log.  One thread."""

    def __init__(self, log: StepLog) -> None:
        self._log = log
        self._num_beginnings = log.num_beginnings
        self._kept: dict[int, bytes] = {}  # step → JSON

    def after(self, since: int, limit: int) -> Iterator[tuple[int, bytes]]:
        """Up to ``limit`` steps after ``since``, oldest first: number and JSON.  Read as they are taken."""
        for _ in range(limit):
            data = self._known(since + 1)
            if data is None:
                break
            since += 1
            limit -= 1
            yield since, data
        for step in islice(self._log.steps(since), limit):
            number = step.record.step
            data = self._known(number) or step_as_json(step)
            self._keep(number, data)
            yield number, data

    def _known(self, number: int) -> bytes | None:
        if self._num_beginnings != self._log.num_beginnings:  # the same numbers are other steps now
            self._num_beginnings = self._log.num_beginnings
            self._kept = {}
        return self._kept.get(number)

    def _keep(self, number: int, data: bytes) -> None:
        """The newest stay, whoever reads the past meanwhile."""
        self._kept[number] = data
        while len(self._kept) > MAX_KEPT:
            del self._kept[min(self._kept)]
