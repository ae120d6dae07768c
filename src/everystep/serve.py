"""The server as a process: its socket, its signals, its order of start and end.

Owns what a signal means, whichever of the three it is: the first stops taking requests in (503), lets the open ones
end until the drain deadline, fails the rest with a typed error and exits with 0; the second exits at once, with 1.  A
worker that can't be kept running ends the server with 1.  Ignorant of routes and of scheduling.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.errors import EverystepError
from everystep.exposure import check_exposure
from everystep.http_limits import BACKLOG
from everystep.messages import EngineInfo
from everystep.settings_sources import with_file_keys

if TYPE_CHECKING:
    from everystep.api.tracing import Tracing
    from everystep.http_server import HttpServer

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a service manager, a closed terminal
LAST_WORDS_S = 0.5  # after the drain, answers get this long to reach their clients
GIB = 2**30


def serve(settings: Settings) -> None:
    """Serve until a signal.  Logging is the caller's to set up.

    Raises :class:`EverystepError` if the address is taken or the model can't be served.
    """
    settings = with_file_keys(settings)
    if settings.otel:
        from everystep.api.tracing import check_tracing

        check_tracing(settings)
    with listen(settings.host, settings.port) as sock:
        check_exposure(settings, sock)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            service = Service(settings, sock)
            runner.run(service.run())
            if service.has_left_threads:
                _exit_now(0)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.  Taken before the model is loaded, so that a taken port is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    takes_both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=takes_both)
    except OSError as error:
        words = (error.strerror or str(error)).partition(" (while")[0]  # Python repeats the address there
        raise EverystepError(f"can't listen on {host} port {port}: {words}") from error


def address_of(sock: socket.socket) -> str:
    """The URL of a listening socket, with the port that it really has."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Service:
    """One life of the server: start, serve, drain, end."""

    def __init__(self, settings: Settings, sock: socket.socket) -> None:
        self._settings = settings
        self._socket = sock
        self._client = EngineClient(settings)
        self._tracing: Tracing | None = None
        self._stop = asyncio.Event()
        self._is_cut_short = False

    @property
    def has_left_threads(self) -> bool:
        """Whether a part of the start goes on in a thread, a download perhaps, that nobody waits for any more."""
        return self._is_cut_short or self._client.is_spawning

    async def run(self) -> None:
        """Returns after a drain.  Raises what made serving impossible."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._on_signal, number)
        try:
            if await self._has_started():
                await self._serve()
        finally:
            await self._client.close()

    async def _has_started(self) -> bool:
        """False where a signal came first."""
        starting = asyncio.create_task(self._client.start(), name="everystep-start")
        stop = asyncio.create_task(self._stop.wait(), name="everystep-stop")
        await asyncio.wait([starting, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if starting.done():
            starting.result()
            return True
        self._is_cut_short = starting.cancel()
        await asyncio.wait([starting])
        return False

    async def _serve(self) -> None:
        server = self._make_server()
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="everystep-http")
        try:
            await self._until_stopped(serving)
        finally:
            server.stop_keeping_alive()
            self._client.stop_accepting()
            await self._client.close()
            await _end_http(server, serving)
            if self._tracing is not None:
                await self._tracing.close()
            logger.log(logging.INFO if self._stop.is_set() else logging.DEBUG, "stopped")

    def _make_server(self) -> HttpServer:
        """Imported here: the worker process starts meanwhile."""
        from everystep.api import create_app
        from everystep.http_server import HttpServer

        app = create_app(self._settings, engine=self._client)
        self._tracing = app.state.tracing
        server = HttpServer(app, self._settings)
        self._client.observer.metrics.connections = server.server_state.connections
        return server

    async def _until_stopped(self, serving: asyncio.Task[None]) -> None:
        """Wait for the stop signal.

        Raises if the worker never gets ready, can't be kept running, or the HTTP server ends of itself.
        """
        stop = asyncio.create_task(self._stop.wait(), name="everystep-stop")
        ready = asyncio.create_task(self._client.wait_ready(), name="everystep-ready")
        lost = asyncio.create_task(self._client.wait_given_up(), name="everystep-lost")
        try:
            await asyncio.wait([stop, ready, serving], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._announce(ready.result())
                await asyncio.wait([stop, lost, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                raise EverystepError("the HTTP server ended of itself")
            if lost.done() and not stop.done():
                raise lost.result()
        finally:
            for task in (stop, ready, lost):
                task.cancel()

    def _announce(self, info: EngineInfo) -> None:
        address = address_of(self._socket)
        logger.info("%s; %s", start_line(info, address), page_words(address, wants_key=bool(self._settings.api_key)))
        if words := suggestion_line(self._client.suggested_sampling):
            logger.info("%s", words)
        parts = ", ".join(f"{name} {part_s:.2f} s" for name, part_s in info.start_up_s.items())
        logger.info("ready %.2f s after the process began; the worker's part: %s", process_age_s(), parts)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            self._leave_now(number)
        words = "%s: no new requests from now on, open ones get %g s; once more: leave at once"
        logger.info(words, signal.Signals(number).name, self._settings.drain_timeout)
        self._stop.set()

    def _leave_now(self, number: int) -> None:
        """The second signal: no more waiting, but no orphan either."""
        self._client.kill()
        with contextlib.suppress(OSError):  # a closed terminal
            print(f"everystep: {signal.Signals(number).name} again: leaving at once", file=sys.stderr, flush=True)
        _exit_now(1)


def _exit_now(status: int) -> NoReturn:
    """Python's own exit would wait for every thread."""
    with contextlib.suppress(OSError, ValueError):
        logging.shutdown()
    os._exit(status)


async def _end_http(server: HttpServer, serving: asyncio.Task[None]) -> None:
    """Let answers out, then close what is left.  Event streams listen for ``handle_exit`` to close properly."""
    from everystep.api.sse import forget_earlier_servers

    if server.server_state.tasks:
        await asyncio.wait(server.server_state.tasks, timeout=LAST_WORDS_S)
    server.handle_exit(signal.SIGTERM, None)
    await serving
    forget_earlier_servers()


def start_line(info: EngineInfo, address: str) -> str:
    """What serves, on one line."""
    seats = ", ".join(f"{policy} {num}" for policy, num in info.seats.items())
    if info.num_threads == 0:  # a server elsewhere, which keeps its threads and blocks to itself
        return f"{info.model} at {address}: {info.runner} {info.precision}, context {info.max_model_len}"
    cache_gib = info.num_blocks * info.kv_block_bytes / GIB
    return (
        f"{info.model} at {address}: {info.runner} {info.precision}, {info.num_threads} threads, seats: {seats}; "
        f"{info.num_blocks} blocks of {info.block_size} tokens ({cache_gib:.2f} GiB at most), "
        f"context {info.max_model_len}"
    )


def page_words(address: str, *, wants_key: bool) -> str:
    """Where a person sees what the server does."""
    return f"live page: {address}/" + (" (asks for the API key)" if wants_key else "")


def suggestion_line(suggested: Mapping[str, float | int]) -> str:
    """What the model's makers suggest to sample with; empty where they suggest nothing."""
    if not suggested:
        return ""
    words = ", ".join(f"{name} {value:g}" for name, value in suggested.items())
    return f"the model's generation_config suggests {words}: not applied; send them with the request"


def process_age_s() -> float:
    """Seconds since this process began, as the kernel knows it: imports before the first line count too."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()  # a process's name may hold spaces
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22: starttime, in ticks since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, AttributeError):  # not Linux
        return time.process_time()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; it doesn't exist for Windows."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
