"""Messages as bytes, and bytes as messages, over one stream socket.

Owns the framing (a 4-byte length, then msgpack) and the tags that tell message types apart.  Typed decoding, no
pickle: what doesn't decode to a known message raises.  Ignorant of what the messages mean.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import Any

import msgspec

from everystep.messages import (
    Abort,
    EngineInfo,
    EventsOnly,
    Seated,
    Shutdown,
    StepOutput,
    SubmitAll,
    VllmNews,
    WorkerFailed,
)

ToWorker = SubmitAll | Abort | Shutdown
FromWorker = StepOutput | Seated | EventsOnly | EngineInfo | VllmNews | WorkerFailed

HEADER = struct.Struct("!IB")  # payload bytes, tag
MAX_FRAME_BYTES = 256 * 2**20
RECEIVE_BYTES = 2**18

_TYPES: tuple[type, ...] = (
    SubmitAll, Abort, Shutdown, StepOutput, Seated, EventsOnly, EngineInfo, VllmNews, WorkerFailed,
)  # fmt: skip
_TAGS = {kind: tag for tag, kind in enumerate(_TYPES)}
_DECODERS: list[msgspec.msgpack.Decoder[Any]] = [msgspec.msgpack.Decoder(kind) for kind in _TYPES]
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: ToWorker | FromWorker) -> bytes:
    """One frame."""
    payload = _ENCODER.encode(message)
    return HEADER.pack(len(payload), _TAGS[type(message)]) + payload


class FrameReader:
    """Cuts a byte stream into messages: feed it what arrives, take what is whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToWorker | FromWorker]:
        """The messages that ``data`` completes.  Raises ``ValueError`` on a frame that can't be ours."""
        self._buffer += data
        messages: list[ToWorker | FromWorker] = []
        position = 0
        while len(self._buffer) - position >= HEADER.size:
            length, tag = HEADER.unpack_from(self._buffer, position)
            if length > MAX_FRAME_BYTES or tag >= len(_TYPES):
                raise ValueError(f"bad frame: {length} bytes, tag {tag}")
            end = position + HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(_DECODERS[tag].decode(memoryview(self._buffer)[position + HEADER.size : end]))
            position = end
        del self._buffer[:position]
        return messages


class WorkerStream:
    """The worker's end of the socket: plain and blocking, as the worker's loop is.

    ``send`` blocks while the other side's buffer is full: that is the bound.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.setblocking(True)
        self._reader = FrameReader()

    def send(self, message: FromWorker) -> None:
        self._socket.sendall(encode(message))

    def receive(self, timeout_s: float) -> list[ToWorker | FromWorker]:
        """What has arrived, waiting up to ``timeout_s`` for the first byte.  Raises ``EOFError`` when the peer left."""
        messages: list[ToWorker | FromWorker] = []
        while select.select([self._socket], [], [], timeout_s)[0]:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise EOFError("the other end is closed")
            messages += self._reader.feed(data)
            timeout_s = 0.0
        return messages

    def close(self) -> None:
        """The peer sees the end at once, also while a thread here waits on the socket and so keeps it."""
        with contextlib.suppress(OSError):  # the peer was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
