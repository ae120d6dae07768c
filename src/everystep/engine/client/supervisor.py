"""Keeps a worker running: starts it, listens to it, notices its death or stall, replaces it with back-off.

Owns the worker's life and its socket on this side.  Ignorant of requests: it passes messages on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum

from everystep.config import Settings
from everystep.engine.client.patience import USUAL, Patience
from everystep.engine.client.vitals import Vitals
from everystep.engine.codec import FrameReader, FromWorker, ToWorker, encode
from everystep.engine.handle import NO_WORDS, Spawn, WorkerHandle, worker_args
from everystep.engine.heartbeat import Heartbeat
from everystep.engine.worker import WorkerArgs
from everystep.errors import EverystepError
from everystep.messages import EngineInfo, EngineStatus, EventsOnly, Shutdown, StepOutput, VllmNews, WorkerFailed

logger = logging.getLogger(__name__)

READ_BYTES = 2**18


class Phase(StrEnum):
    """Where the worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FAILED = "failed"  # given up


class Supervisor:
    """One worker at a time.  ``on_death`` is told in words each time one ends unasked."""

    def __init__(
        self,
        settings: Settings,
        spawn: Spawn,
        *,
        epoch_s: float,
        next_step: Callable[[], int],
        on_message: Callable[[FromWorker], None],
        on_death: Callable[[str], None],
        on_restart: Callable[[], None],
        has_work: Callable[[], bool] = lambda: False,
        who: str = "the worker",
        is_first: bool = False,
        patience: Patience = USUAL,
    ) -> None:
        """``who`` is its name for people; ``has_work`` says whether requests are open that it should serve."""
        self.phase = Phase.STOPPED
        self.info: EngineInfo | None = None
        self.last_words = ""
        self.settled, self.given_up = asyncio.Event(), asyncio.Event()  # settled: ready, or given up
        self.is_spawning = False  # a thread is at it, which nothing can cut short
        self._settings = settings
        self._spawn = spawn
        self._epoch_s = epoch_s
        self._next_step = next_step
        self._on_message = on_message
        self._on_death = on_death
        self._on_restart = on_restart
        self._has_work = has_work
        self._who = who
        self._is_first = is_first
        self._patience = patience
        self._started_s = 0.0
        self._writer: asyncio.StreamWriter | None = None
        self._handle: WorkerHandle | None = None
        self._vitals: Vitals | None = None  # of the worker that is there
        self._verdict = NO_WORDS  # why we ended it ourselves
        self._task: asyncio.Task[None] | None = None
        self._after: asyncio.Event | None = None
        self._stopping = asyncio.Event()

    def start(self, after: asyncio.Event | None = None) -> None:
        """Start the first worker, once ``after`` is set."""
        self.phase = Phase.STARTING
        self._started_s = self._now_s()
        self._after = after
        self._task = asyncio.create_task(self._keep_running(), name="everystep-supervisor")

    async def stop(self) -> None:
        """Ask the worker to leave, and end it if it doesn't.  One that isn't ready has nothing to finish."""
        self._stopping.set()
        if self.phase is Phase.READY:
            self.send(Shutdown())
        else:
            self.kill()
        if self._task is not None:
            if self._after is not None and not self._after.is_set():
                self._task.cancel()  # nothing was started yet
            timeout_s = self._patience.leave_s if self._handle is not None else self._patience.reap_s
            done, _ = await asyncio.wait([self._task], timeout=timeout_s)
            if not done:
                self.kill()
                self._task.cancel()
                await asyncio.wait([self._task])
        self.phase = Phase.STOPPED

    def send(self, message: ToWorker) -> None:
        """Queue a message.  Without a worker it is dropped: its sequences were failed when the worker died."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    def kill(self) -> None:
        """End the worker without asking, now."""
        if self._handle is not None:
            self._handle.kill()

    @property
    def worker_pid(self) -> int | None:
        return self._handle.pid if self._handle is not None else None

    # --- what is said of it ----------------------------------------------------------------------
    def status(self, *, is_draining: bool, has_tokenizer: bool) -> EngineStatus:
        """Live: a worker is there or will be.  Ready: it would serve a request sent now."""
        if self._vitals is not None and self.phase is Phase.READY:
            silence = self._vitals.silence(self._now_s())
            if silence.is_long:
                return EngineStatus(not silence.is_fatal, False, f"{self._who} is stuck: {silence.words}", self.info)
        is_ready = self.phase is Phase.READY and has_tokenizer and not is_draining
        reason = "" if is_ready else self._why_not_ready(is_draining)
        return EngineStatus(is_live=self.phase is not Phase.FAILED, is_ready=is_ready, reason=reason, info=self.info)

    def _why_not_ready(self, is_draining: bool) -> str:
        if is_draining:
            return "the server is shutting down"
        age_s = self._now_s() - self._started_s
        return {
            Phase.STARTING: f"{self._who} is starting ({age_s:.0f} s)",
            Phase.READY: "the tokenizer is loading",
            Phase.RESTARTING: f"{self._who} is restarting: {self.last_words}",
            Phase.FAILED: f"{self._who} can't run: {self.last_words}",
            Phase.STOPPED: "the server is stopped",
        }[self.phase]

    def _now_s(self) -> float:
        return time.monotonic() - self._epoch_s

    # --- one after the other ---------------------------------------------------------------------
    async def _keep_running(self) -> None:
        if self._after is not None:
            await self._after.wait()
        num_failures = 0
        while True:
            words, has_served = await self._run_one()
            num_failures = 1 if has_served else num_failures + 1
            if not self._stopping.is_set():
                self._report_death(words, num_failures)
            await self._bury()
            if self._stopping.is_set() or self.phase is Phase.FAILED:
                return
            try:
                await asyncio.wait_for(self._stopping.wait(), self._patience.back_off_s(num_failures))
                return
            except TimeoutError:
                self._on_restart()

    def _report_death(self, words: str, num_failures: int) -> None:
        """A worker that never got ready won't get ready by trying again: its settings or its model are wrong."""
        limit, back_off_s = self._patience.max_failures, self._patience.back_off_s(num_failures)
        give_up = self.info is None or num_failures >= limit
        self.phase = Phase.FAILED if give_up else Phase.RESTARTING
        self.last_words = words
        if give_up and self.info is not None:
            self.last_words = f"it ended {num_failures} times in a row without having served; the last time: {words}"
        level = logging.DEBUG if self._is_first and self.info is None else logging.ERROR
        then = "giving up" if give_up else f"the next starts in {back_off_s:g} s"
        logger.log(level, "%s ended (%d of %d in a row): %s; %s", self._who, num_failures, limit, words, then)
        self._on_death(words)
        if give_up:
            self.settled.set()
            self.given_up.set()

    async def _run_one(self) -> tuple[str, bool]:
        """One worker's life, up to where nothing more is heard of it: its last words, and whether it was of use.

        An error on this side ends it as its own death would: nobody is left hanging.
        """
        self._handle, self._vitals, self._verdict = None, None, NO_WORDS
        try:
            words = await self._hear_one()
        except Exception as error:
            is_ours = isinstance(error, EverystepError)
            words = error.message if isinstance(error, EverystepError) else f"{type(error).__name__}: {error}"
            logger.log(logging.DEBUG if is_ours else logging.ERROR, "listening to it failed", exc_info=not is_ours)
            self.kill()
        finally:
            self._let_go()
        if self._handle is not None:  # how it ended is known when its process has
            await asyncio.to_thread(self._handle.join, self._patience.reap_s)
            said = self._verdict or words
            words = self._handle.explain(said)
            if not said and self.info is None:
                words = f"{self._who} ended while it started: {words}"
        vitals = self._vitals
        return words, vitals is not None and vitals.has_served(self._now_s(), self._patience.steady_s)

    async def _hear_one(self) -> str:
        self._handle = handle = await self._spawn_one()
        self._vitals = vitals = self._examine(handle)
        reader, self._writer = await asyncio.open_connection(sock=handle.socket, limit=READ_BYTES)
        watch = asyncio.create_task(self._watch(vitals, handle), name="everystep-heartbeat")
        try:
            return await self._listen(reader, vitals)
        finally:
            watch.cancel()

    def _let_go(self) -> None:
        """From now on nobody is taken in."""
        if self.phase is Phase.READY:
            self.phase, self.last_words = Phase.RESTARTING, self._verdict or "it has ended"
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _bury(self) -> None:
        """What it held is free before another starts."""
        if self._handle is None:
            return
        self._handle.kill()
        if not await asyncio.to_thread(self._handle.join, self._patience.leave_s):
            logger.warning("%s (process %d) was killed and hasn't ended yet", self._who, self._handle.pid)
        self._handle = None

    async def _spawn_one(self) -> WorkerHandle:
        args = worker_args(self._settings, epoch_s=self._epoch_s, first_step=self._next_step())
        self.is_spawning = True  # and stays so where this is cancelled: the thread goes on
        handle = await asyncio.to_thread(self._spawn_noted, args)
        if self._stopping.is_set():
            handle.kill()
        return handle

    def _spawn_noted(self, args: WorkerArgs) -> WorkerHandle:
        try:
            return self._spawn(args)
        finally:
            self.is_spawning = False

    def _examine(self, handle: WorkerHandle) -> Vitals:
        return Vitals(
            Heartbeat(handle.heartbeat),
            self._has_work,
            spawned_s=self._now_s(),
            start_timeout_s=self._patience.start_s,
            stall_timeout_s=self._settings.stall_timeout,
            company_s=self._settings.static_max_wait,
        )

    async def _listen(self, reader: asyncio.StreamReader, vitals: Vitals) -> str:
        """Pass on what the worker says, to the end of its socket; its last words."""
        frames, last_words = FrameReader(), NO_WORDS
        while True:
            try:
                data = await reader.read(READ_BYTES)
            except ConnectionError:
                return last_words
            if not data:
                return last_words
            for message in frames.feed(data):
                if isinstance(message, WorkerFailed):
                    last_words = message.message
                    continue
                self._note(message, vitals)
                self._on_message(message)  # type: ignore[arg-type]  # a worker sends FromWorker only

    def _note(self, message: object, vitals: Vitals) -> None:
        match message:
            case StepOutput():
                vitals.note_step(self._now_s())
                vitals.note_events(message.events)
            case EventsOnly():
                vitals.note_events(message.events)
            case VllmNews():
                vitals.note_beat(message.beat_s)
                vitals.note_events(message.events)
            case EngineInfo():
                vitals.note_ready(self._now_s())
                self.info = message
                self.phase = Phase.READY
                self.settled.set()

    async def _watch(self, vitals: Vitals, handle: WorkerHandle) -> None:
        """End a worker that has been silent for too long; its death does the rest."""
        while True:
            await asyncio.sleep(self._patience.watch_interval_s)
            silence = vitals.silence(self._now_s())
            if silence.is_fatal:
                self._verdict = f"{silence.words}; at most {silence.deadline_s:g} s are given"
                logger.error("%s (process %d): %s: ending it", self._who, handle.pid, self._verdict)
                handle.kill()
                return
