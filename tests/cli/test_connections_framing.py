"""Where a request ends: however its bytes come, nothing of the next is taken with it."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.errors import HeadersTooLarge
from everystep.http_framing import MAX_HEAD_BYTES, Framing

NEXT = b"GET /next HTTP/1.1\r\n\r\n"
BODIES = st.lists(st.sampled_from([b"\r\n", b"\r\n\r\n", b"\r", b"\n", b"0\r\n\r\n", b"abc"]), max_size=8).map(b"".join)
HEAD = b"POST /first HTTP/1.1\r\nhost: tiny\r\n"


class Reader:
    """The parser as the reference: it says what ended, the framing what it was given."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.framing = Framing()
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name] = value

    def on_headers_complete(self) -> None:
        chunked = b"transfer-encoding" in self.headers
        self.framing.start_body(None if chunked else int(self.headers.get(b"content-length", 0)))

    def on_body(self, body: bytes) -> None:
        self.body += body
        self.framing.saw_body(len(body))

    def on_chunk_header(self) -> None:
        self.framing.saw_chunk()

    on_chunk_complete = on_chunk_header

    def on_message_complete(self) -> None:
        assert not self.is_whole
        self.is_whole = True

    def read(self, buffer: bytearray) -> None:
        while buffer and not self.is_whole:
            self.parser.feed_data(self.framing.take(buffer))


def read(data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """The body of the first request and what is left, if ``data`` comes cut at ``cuts``."""
    reader, buffer, start = Reader(), bytearray(), 0
    for end in [*sorted(cut % len(data) for cut in cuts), len(data)]:
        buffer += data[start:end]
        reader.read(buffer)
        start = end
    assert reader.is_whole
    return reader.body, bytes(buffer)


@given(BODIES, st.lists(st.integers(0, 10_000), max_size=6))
def test_a_body_of_a_given_length_is_cut_at_its_end(body: bytes, cuts: list[int]) -> None:
    data = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body + NEXT
    assert read(data, cuts) == (body, NEXT)


@given(st.lists(BODIES.filter(bool), max_size=4), st.booleans(), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_body_in_chunks_is_cut_behind_its_last(chunks: list[bytes], has_trailer: bool, cuts: list[int]) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    end = b"0\r\n" + (b"a: b\r\n" if has_trailer else b"") + b"\r\n"
    data = HEAD + b"transfer-encoding: chunked\r\n\r\n" + framed + end + NEXT
    assert read(data, cuts) == (b"".join(chunks), NEXT)


@pytest.mark.parametrize(("num_bytes", "fits"), [(MAX_HEAD_BYTES, True), (MAX_HEAD_BYTES + 1, False)])
def test_a_head_may_have_64_kib_and_no_more(num_bytes: int, fits: bool) -> None:
    start, end = b"GET / HTTP/1.1\r\nx: ", b"\r\n\r\n"
    data = start + b"y" * (num_bytes - len(start) - len(end)) + end
    if fits:
        assert read(data + NEXT, [7, 40_000]) == (b"", NEXT)
    else:
        with pytest.raises(HeadersTooLarge, match="65536"):
            read(data + NEXT, [7, 40_000])


def test_chunks_and_bodies_may_be_larger_than_a_head() -> None:
    body = b"x" * (3 * MAX_HEAD_BYTES)
    in_chunks = b"".join(b"%x\r\n%b\r\n" % (len(body), body) for _ in range(2)) + b"0\r\n\r\n"
    assert read(HEAD + b"transfer-encoding: chunked\r\n\r\n" + in_chunks + NEXT, [100_000]) == (2 * body, NEXT)
    assert read(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body + NEXT, [100_000]) == (body, NEXT)


def test_what_is_no_body_is_bounded_within_one_too() -> None:
    endless = HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * (2 * MAX_HEAD_BYTES)
    with pytest.raises(HeadersTooLarge):
        Reader().read(bytearray(endless))
