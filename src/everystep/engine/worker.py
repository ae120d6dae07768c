"""The worker's loop: drain the inbox, step, send what came of it.

Owns the loop, the heartbeat and the worker process's entry point.  Ignorant of text, HTTP and asyncio.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass

from everystep.config import Settings
from everystep.engine.bootstrap import StartUp, build_core
from everystep.engine.codec import WorkerStream
from everystep.engine.core import EngineCore
from everystep.engine.heartbeat import Heartbeat
from everystep.errors import EngineFailed, EverystepError
from everystep.messages import Abort, EventsOnly, Seated, Shutdown, SubmitAll, WorkerFailed
from everystep.types import Runner, StepPlan

logger = logging.getLogger(__name__)

IDLE_BEAT_S = 0.5  # an idle worker still beats this often
MAX_FAILED_PASSES = 3  # in a row that gave nothing, by no row's fault: a GPU's errors stay until its process ends
PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a terminal sends them to all of its processes


@dataclass(frozen=True, slots=True)
class WorkerArgs:
    """What a worker needs to start.  ``epoch_s`` is the server's start on the system-wide monotonic clock."""

    settings: Settings
    epoch_s: float
    first_step: int
    spawned_s: float  # monotonic; process start and imports count as part of the start


class ShutdownRequested(Exception):
    """The client asked the worker to leave."""


class WorkerLoop:
    """Drives one core from one stream until told to stop or the other end is closed."""

    def __init__(self, stream: WorkerStream, args: WorkerArgs, heartbeat: MutableSequence[float]) -> None:
        self._stream = stream
        self._args = args
        self._heartbeat = Heartbeat(heartbeat)
        self._core: EngineCore | None = None
        self._blocks_told = 0

    def now_s(self) -> float:
        return time.monotonic() - self._args.epoch_s

    def run(self, make_runner: Callable[[], Runner] | None = None, *, ends_process: bool = False) -> None:
        """Build, say what was built, then step until the end.  Raises nothing for an end that was asked for.

        A process that ends with it has no need to free anything: a runner would first wait for what it compiles.
        """
        start_up = StartUp({"start process": round(time.monotonic() - self._args.spawned_s, 3)})
        core, info = build_core(
            self._args.settings,
            now_s=self.now_s,
            drain=self._drain,
            on_pass=self._begin_pass,
            first_step=self._args.first_step,
            runner=make_runner() if make_runner else None,
            start_up=start_up,
        )
        self._core = core
        self._beat()
        self._stream.send(info)
        try:
            while True:
                self._turn(core)
        except (ShutdownRequested, EOFError, BrokenPipeError, ConnectionResetError):
            if ends_process:
                core.end_recording()
            else:
                core.close()

    def _turn(self, core: EngineCore) -> None:
        """One step, or a wait for something to do.  Raises where passes fail and fail."""
        output = core.step()
        if output is not None or core.waits_rightly(self.now_s()):
            self._beat()
        if output is not None:
            self._stream.send(output)
            self._blocks_told = output.summary.blocks_used
            self._give_up_if_broken(core)
            self._drain()
        else:
            self._receive(self._idle_s(core))
        self._tell_rest(core)

    def _give_up_if_broken(self, core: EngineCore) -> None:
        """Its rows have failed and were told; another process may do better."""
        if core.passes.num_failed >= MAX_FAILED_PASSES:
            raise EngineFailed(
                f"{core.passes.num_failed} forward passes in a row failed; the last: {core.passes.last_failure}"
            )

    def _tell_rest(self, core: EngineCore) -> None:
        """What happened without a step.  A plan that came to none may have given blocks back, too."""
        events, blocks_used = core.take_events(), core.pool.num_used_blocks
        if events or blocks_used != self._blocks_told:
            self._stream.send(EventsOnly(events, blocks_used))
            self._blocks_told = blocks_used

    def _idle_s(self, core: EngineCore) -> float:
        ready_s = core.next_ready_s()
        return IDLE_BEAT_S if ready_s is None else min(IDLE_BEAT_S, max(0.0, ready_s - self.now_s()))

    def _drain(self) -> None:
        self._receive(0.0)

    def _receive(self, timeout_s: float) -> None:
        assert self._core is not None
        for message in self._stream.receive(timeout_s):
            match message:
                case SubmitAll():
                    for submit in message.submits:
                        self._core.submit(submit)
                case Abort():
                    self._core.abort(message)
                case Shutdown():
                    raise ShutdownRequested
                case _:
                    raise ValueError(f"a worker doesn't take {type(message).__name__}")

    def _beat(self) -> None:
        self._heartbeat.beat(self.now_s())

    def _begin_pass(self, plan: StepPlan) -> None:
        """The other side is told who has a seat now: a deadline of waiting may pass before the step ends."""
        assert self._core is not None
        self._heartbeat.begin_pass(self.now_s(), plan.num_new_tokens)
        if started := self._core.lanes[plan.policy].last_started:
            self._stream.send(Seated(started))


def serve_stream(
    sock: socket.socket,
    args: WorkerArgs,
    heartbeat: MutableSequence[float],
    make_runner: Callable[[], Runner] | None = None,
    *,
    ends_process: bool = False,
) -> None:
    """Run a worker on ``sock`` until its end; whatever stops it is said to the other end in one line."""
    stream = WorkerStream(sock)
    try:
        WorkerLoop(stream, args, heartbeat).run(make_runner, ends_process=ends_process)
    except Exception as error:
        is_ours = isinstance(error, EverystepError)  # whoever asked for this worker says it
        words = error.message if isinstance(error, EverystepError) else f"{type(error).__name__}: {error}"
        logger.log(logging.DEBUG if is_ours else logging.ERROR, "worker failed: %s", words, exc_info=not is_ours)
        _say_last_word(stream, words)
    finally:
        stream.close()


def _say_last_word(stream: WorkerStream, words: str) -> None:
    try:
        stream.send(WorkerFailed(words))
    except OSError:
        logger.debug("nobody is left to hear: %s", words)


def main(sock: socket.socket, args: WorkerArgs, heartbeat: MutableSequence[float]) -> None:
    """Entry point of the spawned process.  Never returns: a thread that compiles would keep the process."""
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_socket, args=(sock.fileno(),), name="everystep-hang-up", daemon=True).start()
    from everystep.observe.logs import configure_logging

    configure_logging(level=args.settings.log_level, as_json=args.settings.log_json)
    serve_stream(sock, args, heartbeat, ends_process=True)
    os._exit(0)


def _leave_with_socket(fd: int) -> None:
    """End the process when either end of the socket is closed: the other one is when the parent was killed.

    The loop looks at its socket between passes only, and not at all while the model is built.
    """
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))  # a hang-up is always told; what can be read isn't asked for
    poll.poll()
    os._exit(0)
