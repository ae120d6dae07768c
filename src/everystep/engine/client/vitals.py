"""Whether one worker is well, judged by its beat and by its steps.

Owns the judgement.  Ignorant of processes and of what is done about it; told the time.

Two things are looked at.  The beat stops where the worker's process is stopped, or a pass doesn't come back, or lanes
that have work plan no step.  The steps stop also where a worker believes itself idle though requests are open, which
its beat doesn't show.  A pass may take longer the more tokens it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everystep.engine.heartbeat import Heartbeat
from everystep.types import FinishReason, TokenEvent

SERVED = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class Silence:
    """How long nothing has come, and how long it may."""

    words: str
    age_s: float
    deadline_s: float

    @property
    def is_long(self) -> bool:
        """Whoever comes now would wait behind it: half of the deadline has passed."""
        return self.age_s > self.deadline_s / 2

    @property
    def is_fatal(self) -> bool:
        return self.age_s > self.deadline_s


class Vitals:
    """One worker from its start on.  ``has_work`` says whether requests are open that it should serve."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        has_work: Callable[[], bool],
        *,
        spawned_s: float,
        start_timeout_s: float,
        stall_timeout_s: float,
        company_s: float,
    ) -> None:
        """``company_s``: how long a lane may rightly wait for more to come, although it has work."""
        self._heartbeat = heartbeat
        self._has_work = has_work
        self._spawned_s = spawned_s
        self._start_timeout_s = start_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._company_s = company_s
        self._ready_s: float | None = None
        self._progress_s = spawned_s  # of the last step, or the last look without work
        self._has_served = False

    def note_ready(self, now_s: float) -> None:
        self._ready_s = self._progress_s = now_s
        self._heartbeat.beat(max(self._heartbeat.beat_s, now_s))

    def note_beat(self, beat_s: float) -> None:
        """A sign of life that came as a message: vLLM's process shares no memory with ours."""
        self._heartbeat.beat(beat_s)

    def note_step(self, now_s: float) -> None:
        self._progress_s = now_s

    def note_events(self, events: tuple[TokenEvent, ...]) -> None:
        self._has_served = self._has_served or any(event.finish_reason in SERVED for event in events)

    def has_served(self, now_s: float, steady_s: float) -> bool:
        """Whether it was of use: it brought a sequence to its end, or was ready for so long."""
        return self._has_served or (self._ready_s is not None and now_s - self._ready_s > steady_s)

    def silence(self, now_s: float) -> Silence:
        """The worst of what is looked at."""
        if self._ready_s is None:
            age_s = now_s - self._spawned_s
            return Silence(f"no word since its start {age_s:.0f} s ago", age_s, self._start_timeout_s)
        if not self._has_work():
            self._progress_s = now_s
        beat_age_s = max(0.0, now_s - self._heartbeat.beat_s)
        beat = Silence(f"no step for {beat_age_s:.1f} s", beat_age_s, self._stall_timeout_s + self._heartbeat.pass_s)
        idle_s = now_s - self._progress_s
        words = f"no step for {idle_s:.1f} s, though requests are open"
        idle = Silence(words, idle_s, self._stall_timeout_s + self._heartbeat.pass_s + self._company_s)
        return max(beat, idle, key=lambda silence: silence.age_s / silence.deadline_s)
