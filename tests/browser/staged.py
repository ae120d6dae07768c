"""The real application behind real sockets, in a thread, with a model that steps when the test says.

Owns the thread and its loop.  What a page shows of it is decided step by step, so no test waits for time.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from api.harness import ScriptedRunner, Server, serving
from everystep.http_server import HttpServer

T = TypeVar("T")
DEADLINE_S = 60.0


class Stage:
    """A server for a browser: its address, its engine and its model."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, url: str) -> None:
        self._loop = loop
        self.server = server
        self.runner: ScriptedRunner = server.runner
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=DEADLINE_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives, on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def steps(self, num_steps: int) -> None:
        """Let a held model make this many steps, and wait until they are in the step log."""
        self.run(self.server.run_steps(num_steps))

    def log(self, policy: str | None = None) -> list[dict[str, Any]]:
        """Every step so far, as ``/steps`` has it."""
        steps: list[dict[str, Any]] = self.server.engine.observer.step_log.since(-1, 10_000)["steps"]
        return [step for step in steps if policy in (None, step["policy"])]


@contextmanager
def staged(**settings: Any) -> Iterator[Stage]:
    """A ready server.  Its model is free to run until the test calls ``runner.hold()``."""
    ready: Future[Stage] = Future()
    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(settings, ready, over)), name="staged server")
    thread.start()
    try:
        stage = ready.result(DEADLINE_S)
        yield stage
        stage.client.close()
    finally:
        over.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "the server never ended"


async def _serve(settings: dict[str, Any], ready: Future[Stage], over: threading.Event) -> None:
    try:
        async with serving(**settings) as server:
            sock = socket.create_server(("127.0.0.1", 0))
            http = HttpServer(server.app, server.engine.settings)
            task = asyncio.create_task(http.serve(sockets=[sock]))
            host, port = sock.getsockname()
            ready.set_result(Stage(asyncio.get_running_loop(), server, f"http://{host}:{port}"))
            await asyncio.to_thread(over.wait)
            server.runner.release()
            http.should_exit = http.force_exit = True
            await task
    except BaseException as error:
        if not ready.done():
            ready.set_exception(error)
        raise
