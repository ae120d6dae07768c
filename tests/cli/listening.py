"""A server in this process, behind a real socket: its model is held and stepped by the test.

Owns the listening.  Ignorant of what is tested.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from api.harness import Server, serving
from everystep.http_server import HttpServer

KEY = "the-key-of-the-test"


@dataclass
class Listening:
    """The application's harness, and where it listens."""

    app: Server
    http: HttpServer
    url: str

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the event loop go round until it is so."""
        while not is_so():
            await asyncio.sleep(0)

    @property
    def num_open(self) -> int:
        return len(self.http.server_state.connections)


@asynccontextmanager
async def listening(**settings: object) -> AsyncIterator[Listening]:
    """With a key, so that every layer is in place.  Whatever is connected at the end is cut."""
    async with serving(api_key=(KEY,), **settings) as app:
        app.http.headers["x-api-key"] = KEY
        sock = socket.create_server(("127.0.0.1", 0))
        http = HttpServer(app.app, app.engine.settings)
        http.config.load()
        http.lifespan = http.config.lifespan_class(http.config)
        await http.on_tick(0)
        await http.startup(sockets=[sock])
        try:
            yield Listening(app, http, "http://{}:{}".format(*sock.getsockname()))
        finally:
            for server in http.servers:
                server.close()
            for connection in list(http.server_state.connections):
                connection.transport.abort()
            await asyncio.gather(*http.server_state.tasks, return_exceptions=True)
