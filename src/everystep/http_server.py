"""The HTTP server beneath the application: connections, and what they may cost.

Owns how uvicorn is set up.  Ignorant of routes, of signals and of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import uvicorn

from everystep.config import Settings
from everystep.http_connections import Connections
from everystep.http_framing import MAX_HEAD_BYTES
from everystep.http_limits import BACKLOG, MAX_REFUSED, room_for_connections
from everystep.http_protocol import HttpConnection

KEEP_ALIVE_S = 75  # above the usual minute of clients and proxies, so that they close first
CLOSING_S = 2  # streams that never end of themselves (/steps/stream) get this long to close at the server's end


class HttpServer(uvicorn.Server):
    """uvicorn with our connections, and without its own signals, logging set-up and lifespan: the service has them."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._shared = _shared(settings)
        super().__init__(_config(app, settings, self._shared))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The service has the signals."""
        yield

    def stop_keeping_alive(self) -> None:
        """From now on each answer says that its connection ends with it, so that clients and proxies go elsewhere.

        Idle connections stay until the server ends: a request may be on its way, and is owed its 503.
        """
        self._shared.keeps_alive = False
        for connection in self.server_state.connections:
            if isinstance(connection, HttpConnection):
                connection.stop_keeping_alive()


def _config(app: Any, settings: Settings, shared: Connections) -> uvicorn.Config:
    is_debug = settings.log_level == "debug"
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if is_debug else logging.WARNING)
    return uvicorn.Config(
        app,
        http=functools.partial(HttpConnection, shared),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=is_debug,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=CLOSING_S,
    )


def _shared(settings: Settings) -> Connections:
    """What all connections share."""
    return Connections(
        client_timeout_s=settings.client_timeout,
        keep_alive_s=KEEP_ALIVE_S,
        max_open=room_for_connections(settings.max_connections),
        max_refused=MAX_REFUSED,
        max_ahead_bytes=int(settings.max_body_mib * 2**20) + MAX_HEAD_BYTES,
    )
