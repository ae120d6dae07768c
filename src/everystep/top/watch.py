"""What is known of the server: its latest figures, and the last steps of each lane.

Owns what is kept over a silence, a restart and another server in the same place.  Ignorant of HTTP and of looks.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from everystep.top.told import Facts, Figures, Step, StepPage

MAX_STEPS = 400  # kept a lane; wider is no terminal
HISTORY_STEPS = 300  # of all lanes, at the beginning
MAX_BEHIND_STEPS = 1_000  # at a look; with more, all but the newest are passed over
PAGE_STEPS = 100


class Source(Protocol):
    """The server's three answers."""

    def figures(self) -> Figures: ...

    def facts(self) -> Facts | None: ...

    def steps(self, since: int, limit: int) -> StepPage: ...


class Watch:
    """One server over time.  ``figures`` are there after the first :meth:`look`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last_step = -1
        self._restarts_before = 0
        self.figures: Figures | None = None
        self.facts: Facts | None = None
        self.steps: dict[str, deque[Step]] = {}  # by lane, oldest first
        self.silence = ""  # why there is no answer; empty where there is one
        self.num_servers = 0  # that were met in this place

    @property
    def num_restarts(self) -> int:
        """Of the worker, since this server is watched."""
        return self.figures.num_worker_restarts - self._restarts_before if self.figures else 0

    def look(self) -> None:
        """Ask once.  Raises what the source raises; what was known until then stays.

        The figures are newer than the steps: who waits no more by them waits no more.
        """
        if self.figures is None:
            self._take(self._source.figures())
        self._read_steps()
        self._take(self._source.figures())
        if self.facts is None:
            self.facts = self._source.facts()
        self.silence = ""

    def _take(self, figures: Figures) -> None:
        if self.figures is None or figures.server_id != self.figures.server_id:
            self.num_servers += 1
            self._restarts_before = figures.num_worker_restarts
            self.facts = None
            self._forget_steps()
        self.figures = figures
        if self._last_step < 0 or figures.last_step - self._last_step > MAX_BEHIND_STEPS:
            self._last_step = max(-1, figures.last_step - HISTORY_STEPS)

    def _forget_steps(self) -> None:
        self.steps = {}
        self._last_step = -1

    def _read_steps(self) -> None:
        for _ in range(MAX_BEHIND_STEPS // PAGE_STEPS):
            page = self._source.steps(self._last_step, PAGE_STEPS)
            if page.next < self._last_step:  # the numbering began anew
                self._forget_steps()
                continue
            for step in page.steps:
                self.steps.setdefault(step.policy, deque(maxlen=MAX_STEPS)).append(step)
            self._last_step = page.next
            if len(page.steps) < PAGE_STEPS:
                return
