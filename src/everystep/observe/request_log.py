"""The request log: which requests were here lately, and what became of each of their sequences.

Owns the last requests and their bound.  Ignorant of steps but for where to read them: what a sequence waited for,
where it sat and when it was computed is read from the step log when somebody asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from everystep.observe.life_story import tell_request
from everystep.observe.sequence_life import SequenceLife
from everystep.observe.step_log import StepLog
from everystep.observe.step_pack import Step

SEQUENCES_PER_REQUEST = 8  # on average; fewer requests are kept where they have more


@dataclass(frozen=True, slots=True)
class RequestSnapshot:
    """A request and the steps since it came, as they were at one moment; may be told on any thread, once."""

    lives: tuple[SequenceLife, ...]
    steps: Iterator[Step]
    is_complete: bool  # no step since it came is forgotten

    def tell(self, now_s: float) -> dict[str, Any]:
        return tell_request(self.lives, self.steps, self.is_complete, now_s)


class RequestLog:
    """Up to ``max_requests`` requests, newest kept."""

    def __init__(self, step_log: StepLog, max_requests: int = 2_000) -> None:
        if max_requests < 1:
            raise ValueError(f"a request log needs room for a request, got {max_requests}")
        self.max_requests = max_requests
        self._step_log = step_log
        self._requests: dict[str, list[SequenceLife]] = {}  # oldest first
        self._num_sequences = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, life: SequenceLife) -> None:
        """A sequence came.  One that bears the id of an earlier request, all ended, takes its place."""
        lives = self._requests.get(life.request_id)
        if lives is None or lives[0].arrival_s != life.arrival_s:
            self._forget(life.request_id)
            lives = self._requests[life.request_id] = []
        lives.append(life)
        self._num_sequences += 1
        while len(self._requests) > 1 and self._is_over():
            self._forget(next(iter(self._requests)))

    def life(self, request_id: str, now_s: float) -> dict[str, Any] | None:
        """One request's life; ``None`` where it isn't known (any more)."""
        snapshot = self.snapshot(request_id)
        return snapshot.tell(now_s) if snapshot else None

    def snapshot(self, request_id: str) -> RequestSnapshot | None:
        """What :meth:`life` needs, taken quickly, so that another thread can do the reading."""
        return self._snapshot(request_id, self._step_log.steps)

    def waits(self, request_id: str, num_packs: int) -> RequestSnapshot | None:
        """The same with no more steps than it takes to say what an ended request waited for and where it sat.

        Of very many steps it has ``num_packs`` packs, evenly chosen: then a cause may be told some steps late.
        """
        through = max(map(_last_wait, self._requests.get(request_id, ())), default=-1)
        return self._snapshot(request_id, lambda since: self._step_log.sample(since, through, num_packs))

    def _snapshot(self, request_id: str, steps: Callable[[int], Iterator[Step]]) -> RequestSnapshot | None:
        lives = self._requests.get(request_id)
        if lives is None:
            return None
        since, first = min(life.accepted_after_step for life in lives), self._step_log.first_step
        is_complete = first is None or first <= since + 1
        copies = tuple(dataclasses.replace(life) for life in lives)
        return RequestSnapshot(copies, steps(since), is_complete)

    def _is_over(self) -> bool:
        max_sequences = self.max_requests * SEQUENCES_PER_REQUEST
        return len(self._requests) > self.max_requests or self._num_sequences > max_sequences

    def _forget(self, request_id: str) -> None:
        self._num_sequences -= len(self._requests.pop(request_id, ()))


def _last_wait(life: SequenceLife) -> int:
    """The last step that may say something of an ended sequence's waiting: who was never preempted sits from the first
    step on."""
    if life.first_step is not None and life.num_preemptions == 0:
        return life.first_step
    return life.finished_after_step if life.finished_after_step is not None else -1
