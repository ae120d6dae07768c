"""Where a request ends in what a client sends: so that nothing of the next one is parsed while this one is answered.

Owns the cut, and the bound on headers and on all else that isn't body (trailers, chunks' lines).  Ignorant of what the
bytes mean: a head and a chunked body both end with an empty line, so cutting behind each empty line never cuts too
late; the parser says what ended.
"""

from __future__ import annotations

from everystep.errors import HeadersTooLarge

MAX_HEAD_BYTES = 65536  # request line and headers together; trailers of a chunked body once more
EMPTY_LINE = b"\r\n\r\n"


class Framing:
    """Takes pieces from the front of a buffer; one a connection."""

    def __init__(self) -> None:
        self._num_head_bytes = 0  # taken since the last byte of body
        self._num_body_bytes: int | None = None  # still to come; None in a head and in a chunked body
        self._tail = b""  # the last bytes taken: an empty line may come in two parts

    def start_head(self) -> None:
        """The request was taken whole."""
        self._num_head_bytes, self._num_body_bytes, self._tail = 0, None, b""

    def start_body(self, num_bytes: int | None) -> None:
        """The head was taken; ``None`` for a chunked body."""
        self._num_head_bytes, self._num_body_bytes = 0, num_bytes

    def saw_body(self, num_bytes: int) -> None:
        """So many of the bytes taken were body."""
        self._num_head_bytes -= num_bytes

    def saw_chunk(self) -> None:
        """A chunk began or ended."""
        self._num_head_bytes = 0

    def take(self, buffer: bytearray) -> bytes:
        """The next bytes that may be parsed, removed from ``buffer``; some, if it has any.

        Raises :class:`HeadersTooLarge`.
        """
        if self._num_body_bytes is not None:
            piece = bytes(buffer[: self._num_body_bytes])
            self._num_body_bytes -= len(piece)
        else:
            piece = self._up_to_empty_line(buffer)
        del buffer[: len(piece)]
        return piece

    def _up_to_empty_line(self, buffer: bytearray) -> bytes:
        room = MAX_HEAD_BYTES - self._num_head_bytes
        if room <= 0:
            raise HeadersTooLarge(f"the request's line and headers take over {MAX_HEAD_BYTES} bytes, the most read")
        piece = bytes(buffer[: min(room, self._behind_empty_line(buffer))])
        self._num_head_bytes += len(piece)
        self._tail = (self._tail + piece)[-len(EMPTY_LINE) + 1 :]
        return piece

    def _behind_empty_line(self, buffer: bytearray) -> int:
        """How many bytes reach to the end of the first empty line; all where none is in sight."""
        seam = self._tail + buffer[: len(EMPTY_LINE) - 1]
        if (found := seam.find(EMPTY_LINE)) >= 0:
            return found + len(EMPTY_LINE) - len(self._tail)
        found = buffer.find(EMPTY_LINE)
        return found + len(EMPTY_LINE) if found >= 0 else len(buffer)
