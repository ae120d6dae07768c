"""The process that runs vLLM: our messages in, vLLM's tokens out.

Owns the loop between the socket and vLLM: a task for each open sequence, news in batches, signs of life, and a last
word.  Runs in vLLM's environment.  Ignorant of text: token ids come and go.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from everystep.engine.codec import FrameReader, encode
from everystep.engine.vllm.outputs import RequestDelta, read_events, scheduled_s
from everystep.messages import (
    Abort,
    EngineInfo,
    FailureKind,
    SequenceFailure,
    SequenceStart,
    Shutdown,
    Submit,
    SubmitAll,
    VllmLoad,
    VllmNews,
    WorkerFailed,
)
from everystep.types import TokenEvent

READ_BYTES = 2**18
BEAT_S = 0.5  # with nothing to say, a sign of life this often


class HostedEngine(Protocol):
    """vLLM as the host uses it; tests have one of their own."""

    def generate(self, submit: Submit) -> AsyncIterator[RequestDelta]:
        """The sequence's deltas.  Closing the iterator, or cancelling its task, aborts it."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether vLLM didn't take the request, rather than fail at it."""

    def is_dead(self) -> bool:
        """Whether vLLM can't go on."""


class EngineDied(Exception):
    """vLLM's own process ended, or its loop did."""


class Host:
    """Serves one engine on one socket until told to leave, the other end closes, or vLLM dies."""

    def __init__(self, engine: HostedEngine, now_s: Callable[[], float], epoch_s: float) -> None:
        """``now_s``: seconds since the server's start, which was at ``epoch_s`` on the monotonic clock."""
        self._engine = engine
        self._now_s = now_s
        self._epoch_s = epoch_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started: list[SequenceStart] = []
        self._events: list[TokenEvent] = []
        self._failures: list[SequenceFailure] = []
        self._load: VllmLoad | None = None
        self._progress_s = now_s()
        self._has_news = asyncio.Event()

    async def run(self, sock: socket.socket, info: EngineInfo) -> None:
        """Say what is served, then serve."""
        reader, writer = await asyncio.open_connection(sock=sock, limit=READ_BYTES)
        writer.write(encode(info))
        parts = [asyncio.create_task(self._listen(reader)), asyncio.create_task(self._speak(writer))]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        except (ConnectionError, EOFError):
            pass  # the API process is gone, and with it everybody to serve
        except Exception as error:
            writer.write(encode(WorkerFailed(str(error) or type(error).__name__)))
        finally:
            await _cancel([*parts, *self._tasks.values()])
            writer.close()

    def take_load(self, load: VllmLoad) -> None:
        """vLLM made a step."""
        self._load = load
        self._note_progress()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(READ_BYTES):
            for message in frames.feed(data):
                match message:
                    case SubmitAll():
                        for submit in message.submits:
                            self._start(submit)
                    case Abort():
                        self._abort(message.sequence_id)
                    case Shutdown():
                        return
                    case _:
                        raise ValueError(f"vLLM's host doesn't take {type(message).__name__}")
        raise EOFError("the other end is closed")

    def _start(self, submit: Submit) -> None:
        self._note_progress()  # a step is due from now on
        self._tasks[submit.sequence_id] = asyncio.create_task(self._generate(submit))

    def _abort(self, sequence_id: str) -> None:
        """Its client has had its last word already: whatever vLLM still says of it is nobody's."""
        if task := self._tasks.pop(sequence_id, None):
            task.cancel()

    async def _generate(self, submit: Submit) -> None:
        name, is_first, is_ended = submit.sequence_id, True, False
        try:
            async for output in self._engine.generate(submit):
                if is_first:
                    self._note_start(name, output)
                    is_first = False
                events = read_events(name, output, submit.params.logprobs)
                self._events += events
                is_ended = is_ended or any(event.finish_reason is not None for event in events)
                self._note_progress()
            if not is_ended:
                self._fail(name, FailureKind.FAILED, "vLLM ended it without a reason")
        except Exception as error:
            kind = FailureKind.REFUSED if self._engine.is_refusal(error) else FailureKind.FAILED
            if not self._engine.is_dead():  # then all end together, with one word
                self._fail(name, kind, f"vLLM: {error}")
            self._has_news.set()
        finally:
            self._tasks.pop(name, None)

    def _note_start(self, name: str, output: RequestDelta) -> None:
        at_s = scheduled_s(output)
        self._started.append(SequenceStart(name, self._now_s() if at_s is None else at_s - self._epoch_s))

    def _fail(self, name: str, kind: FailureKind, words: str) -> None:
        self._failures.append(SequenceFailure(name, kind, words))
        self._has_news.set()

    def _note_progress(self) -> None:
        self._progress_s = self._now_s()
        self._has_news.set()

    async def _speak(self, writer: asyncio.StreamWriter) -> None:
        """News as they come; what comes while the other end is slow goes with the next ones."""
        while True:
            if self._engine.is_dead():
                raise EngineDied("vLLM's engine process ended")
            writer.write(encode(self._take_news()))
            await writer.drain()
            try:
                await asyncio.wait_for(self._has_news.wait(), BEAT_S)
            except TimeoutError:
                continue

    def _take_news(self) -> VllmNews:
        beat_s = self._progress_s if self._tasks else self._now_s()
        news = VllmNews(beat_s, tuple(self._started), tuple(self._events), tuple(self._failures), self._load)
        self._started.clear()
        self._events.clear()
        self._failures.clear()
        self._load = None
        self._has_news.clear()
        return news


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
