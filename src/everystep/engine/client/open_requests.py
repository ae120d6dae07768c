"""Requests that were taken in and owe their clients an end: one for every sequence, whatever dies.

Owns the open choices, their deadlines, the line's count and the one place where an open sequence becomes a closed one.
Ignorant of who computes: it is told events and sends messages by lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from everystep.config import Settings
from everystep.engine.choice import Choice
from everystep.engine.client.generation import Generation
from everystep.engine.codec import ToWorker
from everystep.engine.door import Line
from everystep.errors import (
    ClientTooSlow,
    EngineFailed,
    EngineUnavailable,
    EverystepError,
    InvalidRequest,
    QueueTimeout,
    RequestTimeout,
)
from everystep.messages import Abort, Delta, FailureKind, GenerationRequest, SequenceFailure
from everystep.observe.observer import Observer
from everystep.types import FinishReason, TokenEvent

MAX_UNREAD = 32_768  # deltas of one request, of 0.3 kB each, that wait for a reader
FAILURES: dict[FailureKind, type[EverystepError]] = {
    FailureKind.REFUSED: InvalidRequest,
    FailureKind.UNAVAILABLE: EngineUnavailable,
    FailureKind.FAILED: EngineFailed,
}


class OpenRequests:
    """All on one event loop.  ``send`` takes a lane and a message for whoever serves it."""

    def __init__(
        self,
        settings: Settings,
        observer: Observer,
        *,
        now_s: Callable[[], float],
        send: Callable[[str, ToWorker], None],
    ) -> None:
        self.line = Line(settings.max_queue, settings.max_queue_tokens)
        self.all_ended = asyncio.Event()
        self.all_ended.set()
        self._settings = settings
        self._observer = observer
        self._now_s = now_s
        self._send = send
        self._owners: dict[str, Generation] = {}  # open sequence id → its request
        self._open: dict[str, Choice] = {}

    # --- one request -----------------------------------------------------------------------------
    def take_in(self, request: GenerationRequest, choices: list[Choice]) -> Generation:
        """From now on each of the choices is owed an end."""
        generation = Generation(request.request_id, choices, self._abort)
        for choice in choices:
            self._open[choice.sequence_id] = choice
            self._owners[choice.sequence_id] = generation
            self.all_ended.clear()
            self.line.enter(choice.sequence_id, len(choice.submit.prompt_ids), choice.submit.arrival_s)
            self._observer.accepted(choice.submit)
        return generation

    def set_deadlines(self, generation: Generation, request: GenerationRequest) -> None:
        """Deadlines are kept on this side, so that they hold whatever the worker does.

        That of the queue is the request's, not a choice's: one whose first choice has a seat is being served, and the
        others wait for their turn as long as the whole request may take.
        """
        queue_s = self._settings.queue_timeout
        total_s, source = request.timeout_s, "timeout_s"
        if total_s is None:
            total_s, source = self._settings.request_timeout, "--request-timeout"
        call_later = asyncio.get_running_loop().call_later
        if queue_s is not None:
            late: EverystepError = QueueTimeout(f"waited {queue_s:g} s for a seat (--queue-timeout)")
            generation.keep_queue_deadline(call_later(queue_s, self._expire, generation, late))
        if total_s is not None:
            late = RequestTimeout(f"took longer than {total_s:g} s ({source})")
            generation.keep_deadline(call_later(total_s, self._expire, generation, late))

    def _expire(self, generation: Generation, error: EverystepError) -> None:
        self._end(generation.choices, FinishReason.TIMEOUT, error)

    def _abort(self, generation: Generation) -> None:
        self._end(generation.choices, FinishReason.ABORTED, None)

    def has_open(self, lanes: Collection[str]) -> bool:
        """Whether a sequence of one of these lanes is owed an end."""
        return any(choice.submit.policy in lanes for choice in self._open.values())

    # --- what the engines say --------------------------------------------------------------------
    def start(self, sequence_ids: Sequence[str]) -> None:
        """These got a seat, together, for the first time or again; those that aren't open (any more) are no matter."""
        now_s = self._now_s()
        self.line.start(sequence_ids, now_s)
        for sequence_id in sequence_ids:
            if choice := self._open.get(sequence_id):
                choice.is_started = True
                self._observer.seated(sequence_id, now_s)
                self._owners[sequence_id].note_seat()

    def deliver(self, events: Iterable[TokenEvent]) -> None:
        now_s = self._now_s()
        for event in events:
            choice = self._open.get(event.sequence_id)
            if choice is None:
                continue  # ended on this side; the worker didn't know yet
            if event.token is not None:
                self._observer.token(event.sequence_id, now_s)
            delta = choice.take(event)
            if delta.finish_reason is None:
                self._hand_over(delta, self._owners[event.sequence_id])
                continue
            self._finish(choice, delta)
            if event.finish_reason is None:  # a stop string: the worker doesn't read text
                self._send(choice.submit.policy, Abort(event.sequence_id, FinishReason.STOP))

    def _hand_over(self, delta: Delta, generation: Generation) -> None:
        """To whoever reads the request's deltas; one who doesn't take them in can't have all kept for him."""
        generation.put(delta)
        if generation.num_unread > MAX_UNREAD:
            late = ClientTooSlow(f"{MAX_UNREAD} tokens were generated that the client hasn't taken in")
            self._end(generation.choices, FinishReason.ABORTED, late)

    def fail(self, failures: Iterable[SequenceFailure]) -> None:
        """Sequences that failed alone."""
        for failure in failures:
            if choice := self._open.get(failure.sequence_id):
                self._finish(choice, choice.end(FinishReason.FAILED, FAILURES[failure.kind](failure.message)))

    def fail_lanes(self, lanes: Collection[str], error: EverystepError) -> None:
        """Whoever served these lanes is gone."""
        lost = [choice for choice in self._open.values() if choice.submit.policy in lanes]
        self._end(lost, FinishReason.FAILED, error)

    # --- ends ------------------------------------------------------------------------------------
    def _end(self, choices: Iterable[Choice], reason: FinishReason, error: EverystepError | None) -> None:
        """End choices on this side, then tell the worker; those that have ended already are left alone."""
        for choice in choices:
            if choice.sequence_id in self._open:
                self._finish(choice, choice.end(reason, error))
                self._send(choice.submit.policy, Abort(choice.sequence_id, reason))

    def _finish(self, choice: Choice, delta: Delta) -> None:
        """The one place where an open sequence becomes a closed one."""
        assert delta.finish_reason is not None
        del self._open[choice.sequence_id]
        generation = self._owners.pop(choice.sequence_id)
        self.line.leave(choice.sequence_id)
        self._observer.finished(choice.sequence_id, delta.finish_reason, self._now_s())
        generation.put(delta)
        if not self._open:
            self.all_ended.set()
