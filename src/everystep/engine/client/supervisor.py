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
from everystep.errors import EverystepError
from everystep.messages import EngineInfo, EngineStatus, Shutdown, VllmNews, WorkerFailed

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
        who: str = "the worker",
        explain: Callable[[WorkerHandle, str], str] = lambda handle, words: words,
        is_first: bool = False,
    ) -> None:
        """``who`` is its name for people; ``explain`` may know better than its last words why one ended.

        Where the first engine can't start, the server ends and says so itself: nothing is logged of it.
        """
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
        self._who = who
        self._explain = explain
        self._is_first = is_first
        self._started_s = 0.0
        self._writer: asyncio.StreamWriter | None = None
        self._handle: WorkerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._after: asyncio.Event | None = None
        self._ready_since_s: float | None = None
        self._is_stopping = False
        self.settled = asyncio.Event()  # ready, or given up

    def start(self, after: asyncio.Event | None = None) -> None:
        """Start the first worker, once ``after`` is set."""
        self.phase = Phase.STARTING
        self._started_s = self._now_s()
        self._after = after
        self._task = asyncio.create_task(self._keep_running(), name="everystep-supervisor")

    async def stop(self) -> None:
        """Ask the worker to leave, and end it if it doesn't."""
        self._is_stopping = True
        if self._task is not None and self._after is not None and not self._after.is_set():
            self._task.cancel()  # nothing was started yet
        if self._writer is not None:
            self.send(Shutdown())
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=JOIN_TIMEOUT_S)
            if not done:
                self.kill()
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
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

    async def _keep_running(self) -> None:
        if self._after is not None:
            await self._after.wait()
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
        level = logging.DEBUG if self._is_first and self.info is None else logging.ERROR
        logger.log(level, "%s ended: %s; %s", self._who, words, "giving up" if give_up else "starting another")
        self._on_death(words)
        if give_up:
            self.settled.set()

    async def _run_one_guarded(self) -> str:
        """As :meth:`_run_one`; an error on this side ends the worker as its own death would: nobody is left hanging."""
        try:
            return await self._run_one()
        except EverystepError as error:
            return error.message
        except Exception as error:
            logger.exception("the supervisor of %s failed", self._who)
            return f"{type(error).__name__}: {error}"

    async def _run_one(self) -> str:
        """Start a worker and pass on what it says; its last words when it ends."""
        self._ready_since_s = None
        args = worker_args(self._settings, epoch_s=self._epoch_s, first_step=self._next_step())
        self._handle = handle = await asyncio.to_thread(self._spawn, args)
        reader, self._writer = await asyncio.open_connection(sock=handle.socket, limit=READ_BYTES)
        watch = asyncio.create_task(self._watch(handle), name="everystep-heartbeat")
        try:
            words = await self._listen(reader, handle)
        finally:
            watch.cancel()
            self._writer.close()
            self._writer = None
            handle.kill()
            await asyncio.to_thread(handle.join, JOIN_TIMEOUT_S)
            self._handle = None
        return self._explain(handle, words)

    async def _listen(self, reader: asyncio.StreamReader, handle: WorkerHandle) -> str:
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
                    handle.heartbeat[0] = max(handle.heartbeat[0], self._now_s())
                    self._note_ready(message)
                if isinstance(message, VllmNews):  # vLLM's process shares no memory with ours
                    handle.heartbeat[0] = message.beat_s
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
                logger.error(
                    "%s (process %d) made no step for %.1f s: ending it", self._who, handle.pid, self.beat_age_s()
                )
                handle.kill()
                return
