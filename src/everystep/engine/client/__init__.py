"""The async client of the engine: the one object that handlers talk to.

Owns open requests, the door, deadlines and the terminal event of every accepted sequence, whatever dies.  Ignorant
of HTTP and of how a worker steps.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Iterable

from everystep.checkpoint import open_checkpoint
from everystep.config import Settings
from everystep.engine.bootstrap import check_model
from everystep.engine.choice import Choice, fan_out
from everystep.engine.client.generation import Generation
from everystep.engine.client.supervisor import Supervisor
from everystep.engine.codec import FromWorker
from everystep.engine.door import Line, check_request
from everystep.engine.handle import Spawn, WorkerProcess, WorkerThread
from everystep.engine.lanes import POLICIES
from everystep.engine.runners import cache_dir, check_settings
from everystep.errors import (
    EngineFailed,
    EngineUnavailable,
    EverystepError,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
)
from everystep.messages import (
    Abort,
    Delta,
    EngineInfo,
    EngineStatus,
    EventsOnly,
    GenerationRequest,
    StepOutput,
    SubmitAll,
)
from everystep.observe.observer import Observer
from everystep.text import Tokenizer
from everystep.types import FinishReason, Runner, TokenEvent

__all__ = ["EngineClient", "Generation"]


class EngineClient:
    """Make it, ``await start()``, ``submit`` requests, ``await close()``.  All on one event loop."""

    policies: tuple[str, ...] = POLICIES

    def __init__(self, settings: Settings, *, spawn: Spawn = WorkerProcess) -> None:
        check_settings(settings)
        self.settings = settings
        self.observer = Observer(policies=self.policies, step_log_size=settings.step_log_size)
        self._spawn = spawn
        self._epoch_s = time.monotonic()
        self._tokenizer: Tokenizer | None = None
        self._supervisor: Supervisor | None = None
        self._owners: dict[str, Generation] = {}  # open sequence id → its request
        self._open: dict[str, Choice] = {}
        self._line = Line(settings.max_queue, settings.max_queue_tokens)
        self._random = random.Random(settings.seed)
        self._last_step = -1
        self._step_news: asyncio.Future[None] | None = None
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._is_draining = False

    @classmethod
    def in_process(cls, settings: Settings, make_runner: Callable[[], Runner] | None = None) -> EngineClient:
        """The worker as a thread of this process, with a runner of the caller's: for tests and notebooks."""
        return cls(settings, spawn=functools.partial(WorkerThread, make_runner=make_runner))

    # --- life ------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Open the tokenizer and start the worker.  Raises :class:`ModelError` for a model that can't be opened.

        Returns before the worker is ready: see :meth:`wait_ready` and :attr:`status`.
        """
        self._supervisor = Supervisor(
            self.settings,
            self._spawn,
            epoch_s=self._epoch_s,
            next_step=lambda: self._last_step + 1,
            on_message=self._on_message,
            on_death=self._on_death,
            on_restart=self.observer.worker_restarted,
        )
        checkpoint = await asyncio.to_thread(open_checkpoint, self.settings.model, cache_dir(self.settings))
        check_model(self.settings, checkpoint)
        self._supervisor.start()
        self._tokenizer = await asyncio.to_thread(Tokenizer, checkpoint.tokenizer)

    async def wait_ready(self) -> EngineInfo:
        """Wait for the first worker.  Raises :class:`EngineFailed` if it can't be made ready."""
        supervisor = self._require_supervisor()
        await supervisor.settled.wait()
        if supervisor.info is None:
            raise EngineFailed(supervisor.last_words)
        return supervisor.info

    async def close(self) -> None:
        """Refuse new requests, let the open ones end until the drain deadline, fail the rest, end the worker."""
        self._is_draining = True
        try:
            await asyncio.wait_for(self._all_ended.wait(), self.settings.drain_timeout)
        except TimeoutError:
            self._end_all(FinishReason.FAILED, EngineUnavailable("the server is shutting down"))
        if self._supervisor is not None:
            await self._supervisor.stop()

    def stop_accepting(self) -> None:
        """From now on every submit is refused; what runs goes on."""
        self._is_draining = True

    # --- what handlers use -----------------------------------------------------------------------
    def now_s(self) -> float:
        """Seconds since this client was made: the server's clock."""
        return time.monotonic() - self._epoch_s

    def unix_s(self) -> int:
        """The time of day, for replies that carry a date."""
        return int(time.time())

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise EngineUnavailable("the server is starting")
        return self._tokenizer

    @property
    def info(self) -> EngineInfo:
        """What the engine is.  Raises :class:`EngineUnavailable` before the first worker is ready."""
        supervisor = self._require_supervisor()
        if supervisor.info is None:
            raise EngineUnavailable(self.status.reason)
        return supervisor.info

    @property
    def max_model_len(self) -> int:
        return self.info.max_model_len

    @property
    def worker_pid(self) -> int | None:
        return self._supervisor.worker_pid if self._supervisor else None

    @property
    def status(self) -> EngineStatus:
        """Live: some worker is, or will be, there.  Ready: a request sent now would be served."""
        if self._supervisor is None:
            return EngineStatus(is_live=True, is_ready=False, reason="the server is starting")
        return self._supervisor.status(is_draining=self._is_draining, has_tokenizer=self._tokenizer is not None)

    def submit(self, request: GenerationRequest) -> Generation:
        """Take a request in, whole or not at all.  Raises the typed error of whatever speaks against it."""
        status = self.status
        if not status.is_ready:
            raise EngineUnavailable(status.reason)
        check_request(request, self.info, self.settings, self.tokenizer.vocab_size)
        now_s = self.now_s()
        num_sequences = len(request.prompts) * request.params.n
        try:
            self._line.check_room(num_sequences, sum(map(len, request.prompts)) * request.params.n, now_s)
        except QueueFull:
            for _ in range(num_sequences):
                self.observer.rejected(request.policy)
            raise
        return self._accept(request, now_s)

    async def wait_for_step(self, after: int) -> None:
        """Return once a step numbered above ``after`` is in the step log."""
        while self._last_step <= after:
            if self._step_news is None:
                self._step_news = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._step_news)

    # --- one request -----------------------------------------------------------------------------
    def _accept(self, request: GenerationRequest, now_s: float) -> Generation:
        submits = fan_out(
            request,
            eos_token_ids=self.tokenizer.eos_token_ids,
            draw_seed=functools.partial(self._random.getrandbits, 64),
            arrival_s=now_s,
        )
        choices = [Choice(index, submit, self.tokenizer) for index, submit in enumerate(submits)]
        generation = Generation(request.request_id, choices, self._abort)
        for choice in choices:
            self._enter(choice, generation)
        self._require_supervisor().send(SubmitAll(tuple(submits)))
        self._set_deadlines(generation, request)
        return generation

    def _enter(self, choice: Choice, generation: Generation) -> None:
        self._open[choice.sequence_id] = choice
        self._owners[choice.sequence_id] = generation
        self._all_ended.clear()
        self._line.enter(choice.sequence_id, len(choice.submit.prompt_ids))
        self.observer.accepted(choice.submit)

    def _set_deadlines(self, generation: Generation, request: GenerationRequest) -> None:
        """Deadlines are kept on this side, so that they hold whatever the worker does."""
        call_later, timers = asyncio.get_running_loop().call_later, []
        queue_s = self.settings.queue_timeout
        total_s = request.timeout_s if request.timeout_s is not None else self.settings.request_timeout
        if queue_s is not None:
            late: EverystepError = QueueTimeout(f"waited {queue_s:g} s for a seat (--queue-timeout)")
            timers.append(call_later(queue_s, self._expire, generation, True, late))
        if total_s is not None:
            late = RequestTimeout(f"took longer than {total_s:g} s (--request-timeout)")
            timers.append(call_later(total_s, self._expire, generation, False, late))
        generation.keep_deadlines(*timers)

    def _expire(self, generation: Generation, only_waiting: bool, error: EverystepError) -> None:
        late = [choice for choice in generation.choices if not (only_waiting and choice.is_started)]
        self._end(late, FinishReason.TIMEOUT, error)

    def _abort(self, generation: Generation) -> None:
        self._end(generation.choices, FinishReason.ABORTED, None)

    def _end_all(self, reason: FinishReason, error: EverystepError | None) -> None:
        self._end(list(self._open.values()), reason, error)

    def _end(self, choices: Iterable[Choice], reason: FinishReason, error: EverystepError | None) -> None:
        """End choices on this side, then tell the worker; those that have ended already are left alone."""
        for choice in choices:
            if choice.sequence_id in self._open:
                self._finish(choice, choice.end(reason, error))
                self._require_supervisor().send(Abort(choice.sequence_id, reason))

    def _finish(self, choice: Choice, delta: Delta) -> None:
        """The one place where an open sequence becomes a closed one."""
        assert delta.finish_reason is not None
        del self._open[choice.sequence_id]
        generation = self._owners.pop(choice.sequence_id)
        self._line.leave(choice.sequence_id)
        self.observer.finished(choice.sequence_id, delta.finish_reason, self.now_s())
        generation.put(delta)
        if not self._open:
            self._all_ended.set()

    # --- what the worker says --------------------------------------------------------------------
    def _on_message(self, message: FromWorker) -> None:
        match message:
            case StepOutput():
                self._on_step(message)
            case EventsOnly():
                self._deliver(message.events)

    def _on_step(self, output: StepOutput) -> None:
        self.observer.step(output)
        self._last_step = output.summary.step
        for sequence_id in output.started:
            if choice := self._open.get(sequence_id):
                choice.is_started = True
                self._line.start(sequence_id, output.summary.start_s)
        self._deliver(output.events)
        if self._step_news is not None:
            self._step_news.set_result(None)
            self._step_news = None

    def _deliver(self, events: Iterable[TokenEvent]) -> None:
        now_s = self.now_s()
        for event in events:
            choice = self._open.get(event.sequence_id)
            if choice is None:
                continue  # ended on this side; the worker didn't know yet
            if event.token is not None:
                self.observer.token(event.sequence_id, now_s)
            delta = choice.take(event)
            if delta.finish_reason is None:
                self._owners[event.sequence_id].put(delta)
                continue
            self._finish(choice, delta)
            if event.finish_reason is None:  # a stop string: the worker doesn't read text
                self._require_supervisor().send(Abort(event.sequence_id, FinishReason.STOP))

    def _on_death(self, words: str) -> None:
        self._end_all(FinishReason.FAILED, EngineFailed(f"the worker ended while serving this request: {words}"))

    def _require_supervisor(self) -> Supervisor:
        if self._supervisor is None:
            raise EngineUnavailable("the server is starting")
        return self._supervisor
