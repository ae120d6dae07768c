"""The HTTP server beneath the application: connections, and what they may cost.

Owns how uvicorn is set up.  Ignorant of routes, of signals and of the engine.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everystep.config import Settings

if TYPE_CHECKING:
    import uvicorn

BACKLOG = 2048
KEEP_ALIVE_S = 75  # above the usual minute of clients and proxies, so that they close first
CLOSING_S = 2  # streams that never end of themselves (/steps/stream) get this long to close at the server's end


def http_server(app: Any, settings: Settings) -> uvicorn.Server:
    """uvicorn without its own signals, logging set-up and lifespan: this module has them."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """The service has the signals."""
            yield

    is_debug = settings.log_level == "debug"
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if is_debug else logging.WARNING)
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=is_debug,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSING_S,
    )
    return Server(config)
