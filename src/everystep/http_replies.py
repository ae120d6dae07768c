"""Errors as bytes, for what is refused before the application hears of it: the same shape as everywhere.

Owns the reply's head.  Such a connection is closed behind it.  Ignorant of sockets.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from everystep.api.error_replies import error_reply
from everystep.errors import EverystepError

Headers = Iterable[tuple[bytes, bytes]]


def closing_reply(error: EverystepError, target: bytes, request_id: str, default_headers: Headers) -> bytes:
    """The whole reply to a request for ``target``, as far as that is known."""
    reply = error_reply(error, target.decode("latin-1"))
    status = HTTPStatus(reply.status_code)
    own = {b"connection": b"close", b"x-request-id": request_id.encode("ascii")}
    headers = {**dict(default_headers), **dict(reply.raw_headers), **own}
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), *(b"%b: %b" % item for item in headers.items())]
    return b"\r\n".join([*lines, b"", bytes(reply.body)])
