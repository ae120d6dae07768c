"""A raw HTTP/1.1 connection, for what HTTP libraries are too well-behaved to do.

Owns the socket, and the reading of replies by their length or their chunks.  Ignorant of what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

READ_LIMIT = 2**16
SMALL_BUFFER, WIDE_BUFFER = 4096, 2**20


@dataclass(frozen=True)
class WireReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """One connection.  What the other end closes shows as ``EOFError`` or ``ConnectionError``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read_reply(self) -> WireReply:
        """The next whole reply."""
        status, headers = await self.read_head()
        if "chunked" in headers.get("transfer-encoding", ""):
            return WireReply(status, headers, b"".join([chunk async for chunk in self.chunks()]))
        length = int(headers.get("content-length", "0"))
        return WireReply(status, headers, await self._exactly(length))

    async def read_head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines[1:] if line]
        return int(lines[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        """Of a chunked body, to its proper end."""
        while length := int(await self._until(b"\r\n"), 16):
            yield await self._exactly(length)
            await self._exactly(2)
        await self._exactly(2)

    async def read_to_end(self) -> bytes:
        return await self.reader.read()

    async def _until(self, mark: bytes) -> bytes:
        try:
            return await self.reader.readuntil(mark)
        except asyncio.IncompleteReadError as error:
            raise EOFError(f"closed after {error.partial[-60:]!r}") from None

    async def _exactly(self, num: int) -> bytes:
        try:
            return await self.reader.readexactly(num)
        except asyncio.IncompleteReadError as error:
            raise EOFError(f"closed after {len(error.partial)} of {num} bytes") from None

    def widen(self) -> None:
        """Open a window that was small: what comes now comes fast."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WIDE_BUFFER)

    def half_close(self) -> None:
        """No more will be sent; what comes is still read."""
        self._writer.write_eof()

    def reset(self) -> None:
        """RST instead of FIN."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(port: int, *, is_small: bool = False) -> AsyncIterator[Wire]:
    """A connection to this machine; ``is_small``: with as small a receive buffer as there is."""
    raw = socket.socket()
    if is_small:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    limit = SMALL_BUFFER if is_small else READ_LIMIT
    wire = Wire(*await asyncio.open_connection(sock=raw, limit=limit))
    try:
        yield wire
    finally:
        with contextlib.suppress(OSError):
            wire.close()


def request_bytes(
    path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, method: str | None = None
) -> bytes:
    """A whole request.  A ``body`` of bytes goes as it is, anything else as JSON."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "soak", "Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    verb = method or ("GET" if body is None else "POST")
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode() + data
