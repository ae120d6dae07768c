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
from everystep.engine.codec import FrameReader, FromWorker, ToWorker, encode
from everystep.engine.handle import Spawn, WorkerHandle, worker_args
from everystep.messages import EngineInfo, EngineStatus, Shutdown, WorkerFailed

logger = logging.getLogger(__name__)

READ_BYTES = 2**18
JOIN_TIMEOUT_S = 5.0
FIRST_BACK_OFF_S = 0.1
MAX_BACK_OFF_S = 10.0
MAX_FAILURES_IN_A_ROW = 6  # deaths without a minute of service between them
STEADY_S = 60.0
WATCH_INTERVAL_S = 0.5


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
    ) -> None:
        self.phase = Phase.STOPPED
        self.info: EngineInfo | None = None
        self.last_words = ""
        self._settings = settings
        self._spawn = spawn
        self._epoch_s = epoch_s
        self._next_step = next_step
        self._on_message = on_message
        self._on_death = on_death
        self._on_restart = on_restart
        self._writer: asyncio.StreamWriter | None = None
        self._handle: WorkerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready_since_s: float | None = None
        self._is_stopping = False
        self.settled = asyncio.Event()  # ready, or given up

    def start(self) -> None:
        self.phase = Phase.STARTING
        self._task = asyncio.create_task(self._keep_running(), name="everystep-supervisor")

    async def stop(self) -> None:
        """Ask the worker to leave, and end it if it doesn't."""
        self._is_stopping = True
        if self._writer is not None:
            self.send(Shutdown())
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=JOIN_TIMEOUT_S)
            if not done:
                self._kill()
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        self.phase = Phase.STOPPED

    def send(self, message: ToWorker) -> None:
        """Queue a message.  Without a worker it is dropped: its sequences were failed when the worker died."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    @property
    def worker_pid(self) -> int | None:
        return self._handle.pid if self._handle is not None else None

    def beat_age_s(self) -> float:
        """Seconds since the worker last came round its loop; 0 where none is ready."""
        if self._handle is None or self.phase is not Phase.READY:
            return 0.0
        return max(0.0, self._now_s() - self._handle.heartbeat[0])

    def is_stalled(self) -> bool:
        return self.beat_age_s() > self._settings.stall_timeout

    def status(self, *, is_draining: bool, has_tokenizer: bool) -> EngineStatus:
        """Live: a worker is there or will be.  Ready: it would serve a request sent now."""
        if self.is_stalled():
            words = f"no step for {self.beat_age_s():.0f} s"
            return EngineStatus(is_live=False, is_ready=False, reason=words, info=self.info)
        is_ready = self.phase is Phase.READY and has_tokenizer and not is_draining
        reason = "" if is_ready else self._why_not_ready(is_draining)
        return EngineStatus(is_live=self.phase is not Phase.FAILED, is_ready=is_ready, reason=reason, info=self.info)

    def _why_not_ready(self, is_draining: bool) -> str:
        if is_draining:
            return "the server is shutting down"
        return {
            Phase.STARTING: "the worker is starting",
            Phase.READY: "the tokenizer is loading",
            Phase.RESTARTING: f"the worker is restarting: {self.last_words}",
            Phase.FAILED: f"the worker can't run: {self.last_words}",
            Phase.STOPPED: "the server is stopped",
        }[self.phase]

    def _now_s(self) -> float:
        return time.monotonic() - self._epoch_s

    async def _keep_running(self) -> None:
        num_failures = 0
        while True:
            words = await self._run_one_guarded()
            served_s = self._now_s() - self._ready_since_s if self._ready_since_s is not None else None
            if self._is_stopping:
                return
            num_failures = 1 if served_s is not None and served_s > STEADY_S else num_failures + 1
            self._report_death(words, give_up=self.info is None or num_failures >= MAX_FAILURES_IN_A_ROW)
            if self.phase is Phase.FAILED:
                return
            await asyncio.sleep(min(MAX_BACK_OFF_S, FIRST_BACK_OFF_S * 2 ** (num_failures - 1)))
            self._on_restart()

    def _report_death(self, words: str, *, give_up: bool) -> None:
        """A worker that never got ready won't get ready by trying again: its settings or its model are wrong."""
        self.last_words = words
        self.phase = Phase.FAILED if give_up else Phase.RESTARTING
        logger.error("worker ended: %s; %s", words, "giving up" if give_up else "starting another")
        self._on_death(words)
        if give_up:
            self.settled.set()

    async def _run_one_guarded(self) -> str:
        """As :meth:`_run_one`; an error on this side ends the worker as its own death would: nobody is left hanging."""
        try:
            return await self._run_one()
        except Exception as error:
            logger.exception("the worker's supervisor failed")
            return f"{type(error).__name__}: {error}"

    async def _run_one(self) -> str:
        """Start a worker and pass on what it says; its last words when it ends."""
        self._ready_since_s = None
        args = worker_args(self._settings, epoch_s=self._epoch_s, first_step=self._next_step())
        self._handle = handle = await asyncio.to_thread(self._spawn, args)
        reader, self._writer = await asyncio.open_connection(sock=handle.socket, limit=READ_BYTES)
        watch = asyncio.create_task(self._watch(handle), name="everystep-heartbeat")
        try:
            return await self._listen(reader)
        finally:
            watch.cancel()
            self._writer.close()
            self._writer = None
            handle.kill()
            await asyncio.to_thread(handle.join, JOIN_TIMEOUT_S)
            self._handle = None

    async def _listen(self, reader: asyncio.StreamReader) -> str:
        frames = FrameReader()
        last_words = "the process ended"
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
                if isinstance(message, EngineInfo):
                    self._note_ready(message)
                self._on_message(message)  # type: ignore[arg-type]  # a worker sends FromWorker only

    def _note_ready(self, info: EngineInfo) -> None:
        self.info = info
        self.phase = Phase.READY
        self._ready_since_s = self._now_s()
        self.settled.set()

    async def _watch(self, handle: WorkerHandle) -> None:
        """End a worker whose loop hasn't come round for the stall deadline; its death does the rest."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            if self.is_stalled():
                logger.error("worker %d made no step for %.1f s: ending it", handle.pid, self.beat_age_s())
                handle.kill()
                return

    def _kill(self) -> None:
        if self._handle is not None:
            self._handle.kill()
