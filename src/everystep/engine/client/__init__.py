"""The async client of the engine: the one object that handlers talk to.

Owns the server's clock, the way of a request from the door to its lane, and the order of start and end.  Ignorant of
HTTP and of how a worker, or vLLM, steps.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable

from everystep.checkpoint import open_checkpoint, suggested_sampling
from everystep.config import Settings
from everystep.engine.bootstrap import check_model
from everystep.engine.choice import Choice, fan_out
from everystep.engine.client.backends import Backend, Backends, lanes_of
from everystep.engine.client.generation import Generation
from everystep.engine.client.open_requests import OpenRequests
from everystep.engine.client.patience import USUAL, Patience
from everystep.engine.codec import FromWorker
from everystep.engine.door import check_lane, check_request
from everystep.engine.handle import Spawn, WorkerProcess, WorkerThread
from everystep.engine.recording import check_record
from everystep.engine.runners import cache_dir, check_settings
from everystep.engine.vllm.launch import check_vllm_python, check_vllm_settings
from everystep.errors import EngineFailed, EngineUnavailable, EverystepError, QueueFull
from everystep.messages import (
    EngineInfo,
    EngineStatus,
    EventsOnly,
    GenerationRequest,
    Seated,
    StepOutput,
    SubmitAll,
    VllmNews,
)
from everystep.observe.observer import Observer
from everystep.text import Tokenizer
from everystep.types import Runner

__all__ = ["EngineClient", "Generation"]


class EngineClient:
    """Make it, ``await start()``, ``submit`` requests, ``await close()``.  All on one event loop."""

    def __init__(self, settings: Settings, *, spawn: Spawn = WorkerProcess, patience: Patience = USUAL) -> None:
        check_settings(settings)
        check_vllm_settings(settings)
        check_record(settings)
        self.settings = settings
        self.observer = Observer(policies=lanes_of(settings), step_log_size=settings.step_log_size)
        self._spawn = spawn
        self._patience = patience
        self._epoch_s = time.monotonic()
        self._tokenizer: Tokenizer | None = None
        self._vocab_size = 0  # of both tokenizer and model
        self._backends: Backends | None = None
        self._requests = OpenRequests(
            settings, self.observer, now_s=self.now_s, send=lambda lane, message: self._require().send(lane, message)
        )
        self._random = random.Random(settings.seed)
        self._last_step = -1
        self._step_news: asyncio.Future[None] | None = None
        self.suggested_sampling: dict[str, float | int] = {}  # the model's own, by parameter; shown, never applied
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
        checkpoint = await asyncio.to_thread(open_checkpoint, self.settings.model, cache_dir(self.settings))
        check_model(self.settings, checkpoint)
        self.suggested_sampling = suggested_sampling(checkpoint)
        await asyncio.to_thread(check_vllm_python, self.settings)
        backends = Backends(self.settings, self._spawn, checkpoint, self, self._epoch_s, self._patience)
        backends.start()
        self._backends = backends
        self._tokenizer = await asyncio.to_thread(Tokenizer.checked, checkpoint.tokenizer)
        self._vocab_size = min(self._tokenizer.vocab_size, checkpoint.outline.vocab_size)

    async def wait_ready(self) -> EngineInfo:
        """Wait for the first engine.  Raises :class:`EngineFailed` if it can't be made ready."""
        first = self._require().first
        await first.settled.wait()
        if first.info is None:
            raise EngineFailed(first.last_words)
        return first.info

    async def wait_given_up(self) -> EverystepError:
        """Wait until the first engine won't be replaced any more; why, in words."""
        first = self._require().first
        await first.given_up.wait()
        return EngineFailed(first.status(is_draining=False, has_tokenizer=True).reason)

    @property
    def is_spawning(self) -> bool:
        """Whether a thread is at starting an engine's process, which not even :meth:`close` cuts short."""
        return self._backends is not None and self._backends.is_spawning

    async def close(self) -> None:
        """Refuse new requests, let the open ones end until the drain deadline, fail the rest, end the engines."""
        self._is_draining = True
        try:
            await asyncio.wait_for(self._requests.all_ended.wait(), self.settings.drain_timeout)
        except TimeoutError:
            self._requests.fail_lanes(self.policies, EngineUnavailable("the server is shutting down"))
        if self._backends is not None:
            await self._backends.stop()

    def stop_accepting(self) -> None:
        """From now on every submit is refused; what runs goes on."""
        self._is_draining = True

    def kill(self) -> None:
        """End the engines' processes now, without asking."""
        if self._backends is not None:
            self._backends.kill()

    # --- what handlers use -----------------------------------------------------------------------
    def now_s(self) -> float:
        """Seconds since this client was made: the server's clock."""
        return time.monotonic() - self._epoch_s

    def zero_unix_ns(self) -> int:
        """When the server's clock stood at 0, in nanoseconds of the time of day, as that goes now: it may be set."""
        return time.time_ns() - int(self.now_s() * 1e9)

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
        """What the first engine is.  Raises :class:`EngineUnavailable` before it is ready."""
        return self._info_of(self._require().first)

    @property
    def max_model_len(self) -> int:
        return self.info.max_model_len

    def max_model_len_of(self, lane: str) -> int:
        """Raises :class:`EngineUnavailable` while nobody serves the lane."""
        return self._info_of(self._require().of(lane)).max_model_len

    @property
    def policies(self) -> tuple[str, ...]:
        """The lanes of this server."""
        return self._backends.lanes if self._backends is not None else lanes_of(self.settings)

    def lane(self, named: str | None, default: str) -> str:
        """The lane that a client named, or the endpoint's own; where the server hasn't that, the server's first.

        Raises :class:`InvalidParameter` for a named one that isn't here.
        """
        if named is not None:
            check_lane(named, self.policies)
            return named
        return default if default in self.policies else self.policies[0]

    def check_ready(self, lane: str) -> None:
        """Raise :class:`EngineUnavailable`, with the reason, if a request for this lane wouldn't be served now."""
        self._check_ready(self._require().of(lane))

    @property
    def worker_pid(self) -> int | None:
        return self._backends.first.worker_pid if self._backends else None

    @property
    def status(self) -> EngineStatus:
        """Live: some worker is, or will be, there.  Ready: a request sent now would be served."""
        if self._backends is None:
            return EngineStatus(is_live=True, is_ready=False, reason="the server is starting")
        return self._backends.status(is_draining=self._is_draining, has_tokenizer=self._tokenizer is not None)

    def submit(self, request: GenerationRequest) -> Generation:
        """Take a request in, whole or not at all.  Raises the typed error of whatever speaks against it."""
        backend = self._require().of(request.policy)
        self._check_ready(backend)
        check_request(request, self._info_of(backend), self.settings, self._vocab_size)
        now_s = self.now_s()
        num_sequences = len(request.prompts) * request.params.n
        num_tokens = sum(map(len, request.prompts)) * request.params.n
        try:
            self._requests.line.check_room(num_sequences, num_tokens, now_s)
        except QueueFull:
            for _ in range(num_sequences):
                self.observer.rejected(request.policy)
            raise
        return self._accept(request, backend, now_s)

    async def wait_for_step(self, after: int) -> None:
        """Return once a step numbered above ``after`` is in the step log."""
        while self._last_step <= after:
            if self._step_news is None:
                self._step_news = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._step_news)

    # --- one request -----------------------------------------------------------------------------
    def _accept(self, request: GenerationRequest, backend: Backend, now_s: float) -> Generation:
        submits = fan_out(
            request,
            eos_token_ids=self.tokenizer.eos_token_ids,
            draw_seed=functools.partial(self._random.getrandbits, 64),
            arrival_s=now_s,
        )
        choices = [Choice(index, submit, self.tokenizer) for index, submit in enumerate(submits)]
        generation = self._requests.take_in(request, choices)
        backend.send(SubmitAll(tuple(submits)))
        self._requests.set_deadlines(generation, request)
        return generation

    # --- what the engines say (Hooks) --------------------------------------------------------------
    def on_message(self, message: FromWorker) -> None:
        match message:
            case StepOutput():
                self._on_step(message)
            case Seated():
                self._requests.start(message.sequence_ids)
            case EventsOnly():
                self.observer.blocks(message.blocks_used)
                self._requests.deliver(message.events)
            case VllmNews():
                self._on_vllm(message)

    def _on_step(self, output: StepOutput) -> None:
        self.observer.step(output)
        self._last_step = output.summary.step
        self._requests.deliver(output.events)
        if self._step_news is not None:
            self._step_news.set_result(None)
            self._step_news = None

    def _on_vllm(self, news: VllmNews) -> None:
        self._requests.start([start.sequence_id for start in news.started])
        for start in news.started:
            self.observer.started(start.sequence_id, start.at_s)
        self._requests.deliver(news.events)
        self._requests.fail(news.failures)
        if news.load is not None:
            self.observer.vllm_load(news.load)

    def on_death(self, lanes: tuple[str, ...], words: str) -> None:
        if "vllm" in lanes:
            self.observer.vllm_load(None)
        else:
            self.observer.worker_ended()
        whose = "vLLM" if "vllm" in lanes else "the worker"
        error: EverystepError = EngineFailed(f"{whose} ended while serving this request: {words}")
        self._requests.fail_lanes(lanes, error)

    def on_restart(self) -> None:
        self.observer.worker_restarted()

    def has_work(self, lanes: tuple[str, ...]) -> bool:
        return self._requests.has_open(lanes)

    def next_step(self) -> int:
        return self._last_step + 1

    def _check_ready(self, backend: Backend) -> None:
        status = backend.status(is_draining=self._is_draining, has_tokenizer=self._tokenizer is not None)
        if not status.is_ready:
            raise EngineUnavailable(status.reason)

    def _info_of(self, backend: Backend) -> EngineInfo:
        if backend.info is None:
            raise EngineUnavailable(
                backend.status(is_draining=self._is_draining, has_tokenizer=self._tokenizer is not None).reason
            )
        return backend.info

    def _require(self) -> Backends:
        if self._backends is None:
            raise EngineUnavailable("the server is starting")
        return self._backends
