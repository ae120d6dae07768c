"""What a request's head says about the request: its version, its host, its body's length; and what is wrong with it.

Owns the rules that the parser leaves to others, and the words for its complaints.  Ignorant of sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

import httptools

from everystep.errors import EverystepError, InvalidRequest

Headers = Iterable[tuple[bytes, bytes]]  # names in lower case
VERSIONS = ("1.0", "1.1")


def check_head(version: str, headers: Headers) -> None:
    """Raises :class:`InvalidRequest`.  RFC 9112, 3.2: one ``Host``, which only HTTP/1.0 may leave out."""
    if version not in VERSIONS:
        raise InvalidRequest(f"HTTP/{version} isn't spoken here; HTTP/1.1 is")
    num_hosts = sum(name == b"host" for name, _ in headers)
    if num_hosts > 1 or (num_hosts == 0 and version == "1.1"):
        raise InvalidRequest(f"a request has one Host header, this one {num_hosts}")


def with_path(target: bytes) -> bytes:
    """``http://host?query`` names no path: then it's ``/``."""
    url = httptools.parse_url(target)
    if url.path is not None:
        return target
    return b"/?" + url.query if url.query else b"/"


def announced_bytes(headers: Headers) -> int | None:
    """The body's length; ``None`` for chunks.  The parser has refused whatever contradicts itself."""
    named = dict(headers)
    return None if b"transfer-encoding" in named else int(named.get(b"content-length", b"0"))


def complaint(error: httptools.HttpParserError) -> EverystepError:
    """What the parser, or one of its callbacks, has against the request.  The words hold nothing of the client's."""
    if isinstance(cause := error.__context__, EverystepError):
        return cause
    words = "its target can't be read" if isinstance(error, httptools.HttpParserCallbackError) else str(error)
    return InvalidRequest(f"this isn't HTTP/1.1: {words}")
