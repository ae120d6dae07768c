"""Answers to HTTP/1.0: it knows no chunks, so a body of unknown length ends with its connection.

Owns that difference.  Ignorant of sockets.  Relies on how uvicorn's ``RequestResponseCycle`` counts a body's bytes.
"""

from __future__ import annotations

import sys

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Unframed:
    """Stands in for the ``send`` of one request."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._has_length = True

    async def __call__(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if not self._has_length:
                self._cycle.chunked_encoding = False
                self._cycle.expected_content_length = sys.maxsize
        elif not self._has_length and message["type"] == "http.response.body" and not message.get("more_body", False):
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)
