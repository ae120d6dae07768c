"""The HTTP server beneath the application: connections, and what they may cost.

Owns how uvicorn is set up.  Ignorant of routes, of signals and of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everystep.config import Settings
from everystep.http_framing import MAX_HEAD_BYTES
from everystep.http_limits import MAX_REFUSED, room_for_connections

if TYPE_CHECKING:
    import uvicorn

    from everystep.http_protocol import Connections

BACKLOG = 2048
KEEP_ALIVE_S = 75  # above the usual minute of clients and proxies, so that they close first
CLOSING_S = 2  # streams that never end of themselves (/steps/stream) get this long to close at the server's end


def http_server(app: Any, settings: Settings) -> uvicorn.Server:
    """uvicorn with our connections, without its own signals, logging set-up and lifespan: this module has them."""
    import uvicorn

    from everystep.http_protocol import HttpConnection

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """The service has the signals."""
            yield

    is_debug = settings.log_level == "debug"
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if is_debug else logging.WARNING)
    config = uvicorn.Config(
        app,
        http=functools.partial(HttpConnection, _shared(settings)),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=is_debug,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=CLOSING_S,
    )
    return Server(config)


def _shared(settings: Settings) -> Connections:
    """What all connections share."""
    from everystep.http_protocol import Connections

    return Connections(
        client_timeout_s=settings.client_timeout,
        keep_alive_s=KEEP_ALIVE_S,
        max_open=room_for_connections(settings.max_connections),
        max_refused=MAX_REFUSED,
        max_ahead_bytes=int(settings.max_body_mib * 2**20) + MAX_HEAD_BYTES,
    )
