"""A client that speaks bytes: it may stall, lie, half close, reset, and look at what really came.

Owns one socket.  Ignorant of what is tested.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

DEADLINE_S = 60.0
READ_BYTES = 65536


@dataclass(frozen=True)
class Reply:
    """One answer.  Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What every error holds."""
        fields: dict[str, Any] = self.json()["error"]
        assert {"type", "message", "param"} <= fields.keys()
        return fields


def request(
    method: str, path: str, body: bytes | Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole request; a mapping is sent as JSON.  ``headers`` replace those of the same name."""
    content = json.dumps(body).encode() if isinstance(body, Mapping) else body
    fields = {"host": "localhost"}
    if content is not None:
        fields |= {"content-type": "application/json", "content-length": str(len(content))}
    fields |= {name.lower(): value for name, value in (headers or {}).items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + (content or b"")


class Wire:
    """A connection to ``url``; ends with the ``with`` block.  ``read_buffer`` bounds what the kernel takes unread."""

    def __init__(self, url: str, *, read_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.socket = socket.socket(socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET)
        if read_buffer is not None:  # before connecting: it sets the window that is offered
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, read_buffer)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((parts.hostname, parts.port))
        self._unread = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    # --- out -------------------------------------------------------------------------------------
    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str) -> Reply:
        """A request and its answer; ``x_api_key="k"`` is sent as ``x-api-key``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(request(method, path, body, named))
        return self.read_reply(has_body=method != "HEAD")

    def leave(self) -> None:
        """FIN."""
        self.socket.close()

    def reset(self) -> None:
        """RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def half_close(self) -> None:
        """FIN, but the socket still reads."""
        self.socket.shutdown(socket.SHUT_WR)

    # --- in --------------------------------------------------------------------------------------
    def read_reply(self, *, has_body: bool = True) -> Reply:
        """The next answer, interim ones (100) as well."""
        head = self.read_until(b"\r\n\r\n").decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split(" ")[1])
        return Reply(status, headers, self._read_body(headers) if has_body and status >= 200 else b"")

    def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while num_bytes := int(self.read_until(b"\r\n"), 16):
                body += self._read_exactly(num_bytes + 2)[:-2]
            assert self._read_exactly(2) == b"\r\n"
            return body
        if "content-length" in headers:
            return self._read_exactly(int(headers["content-length"]))
        return self.read_to_end()

    def read_until(self, mark: bytes) -> bytes:
        """What comes up to ``mark``, and ``mark``."""
        while mark not in self._unread:
            self._unread += self._receive() or self._ended_early(mark)
        found, _, self._unread = self._unread.partition(mark)
        return found + mark

    def read_to_end(self) -> bytes:
        """Everything until the server closes; a reset is an error."""
        while data := self._receive():
            self._unread += data
        found, self._unread = self._unread, b""
        return found

    def is_ended(self) -> bool:
        """Wait until the server ends the connection, in whatever way; nothing but that may come."""
        try:
            return self.read_to_end() == b""
        except ConnectionError:
            return True

    def _read_exactly(self, num_bytes: int) -> bytes:
        while len(self._unread) < num_bytes:
            self._unread += self._receive() or self._ended_early(f"{num_bytes} bytes".encode())
        found, self._unread = self._unread[:num_bytes], self._unread[num_bytes:]
        return found

    def _receive(self) -> bytes:
        return self.socket.recv(READ_BYTES)

    def _ended_early(self, mark: bytes) -> bytes:
        raise EOFError(f"the server closed before {mark!r} came; it said {self._unread!r}")
