"""A connection: from the bytes of a client to requests for the application, one at a time, and back.

Owns what uvicorn's own protocol leaves open.  A client that goes is noticed in every state: reading is never paused
while a request is answered; what a client sends ahead is kept, up to the size of one request.  Whoever sends or reads
too slowly, or speaks no HTTP, gets an answer of the usual shape, as far as one can be given, and is let go.  Ignorant
of routes and of the engine.

Relies on what ``HttpToolsProtocol`` keeps between its callbacks: ``cycle``, ``flow``, ``parser``, ``url``, ``headers``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from everystep.api.request_scope import fresh_request_id, request_id_of
from everystep.errors import ClientTooSlow, EngineUnavailable, EverystepError, InvalidRequest, TooManyConnections
from everystep.http_connections import Connections, set_kernel_bounds
from everystep.http_deadlines import Deadline, WriteStall
from everystep.http_framing import Framing
from everystep.http_heads import announced_bytes, check_head, complaint, with_path
from everystep.http_replies import closing_reply
from everystep.http_unframed import Unframed

logger = logging.getLogger(__name__)

LINGER_S = 5.0  # an answer to a client that is still sending would be lost if the connection were closed at once
LAST_READ_S = 1.0  # at the server's end, for what is on its way; half of what uvicorn waits before it cancels tasks
BLANKS = b"\r\n"


class _Outlet:
    """The transport as a response sees it: its ``close`` waits for a client that is still sending."""

    def __init__(self, connection: HttpConnection) -> None:
        self.write = connection.transport.write  # bound once: streams write an event each
        self.is_closing = connection.transport.is_closing
        self.close = connection.end


class HttpConnection(HttpToolsProtocol):
    """One client's connection; requests sent ahead wait as bytes until it's their turn."""

    def __init__(self, shared: Connections, **server: Any) -> None:
        super().__init__(**server)
        self._shared = shared
        self._unread = bytearray()
        self._framing = Framing()
        self._arriving = Deadline(self.loop)
        self._last = Deadline(self.loop)  # the server's end
        self._is_between = True  # no request has come in part
        self._is_in_head = True
        self._is_ending = False
        self._ignores_upgrade = False
        self._keeps_alive = True
        self._full_parser = self.parser

    # --- the connection --------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        num_open = len(self.connections)
        super().connection_made(transport)
        set_kernel_bounds(transport, self._shared.client_timeout_s)
        self._outlet = _Outlet(self)
        self._stall = WriteStall(self.loop, transport, self._shared.client_timeout_s, self._give_up)
        if num_open >= self._shared.max_open:
            self._turn_away()
        else:
            self._arriving.set(self._shared.client_timeout_s, self.end)

    def _turn_away(self) -> None:
        self.connections.discard(self)
        if len(self._shared.refused) >= self._shared.max_refused:
            self._cut()
            return
        self._shared.refused.add(self)
        self._is_between = False  # its request is on its way
        self._refuse(TooManyConnections(f"{self._shared.max_open} connections are open, the most (--max-connections)"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ending = True
        self._shared.refused.discard(self)
        self._arriving.clear()
        self._last.clear()
        self._stall.stop()
        self._unread.clear()
        super().connection_lost(exc)
        del self._full_parser  # it refers to its owner

    def eof_received(self) -> None:
        """Half a close is a whole one: whoever sends no more has left.  The transport closes itself behind this."""
        if not (self._is_between or self._is_ending):
            self._refuse(InvalidRequest("the request was cut short"))
        self._forget_request()
        self._is_ending = True
        self._arriving.clear()
        self._stall.start()  # what is still to be sent keeps the transport open

    def _has_request(self) -> bool:
        """Whether the application has a request whose answer isn't complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _forget_request(self) -> None:
        """The application learns that nobody listens any more."""
        if self._has_request():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.cycle.waiting_for_100_continue = False
        self.flow.resume_writing()

    def _cut(self) -> None:
        """End at once, whatever is on its way."""
        self._is_ending = True
        self._forget_request()
        self.transport.abort()

    def end(self) -> None:
        """Close behind what has been written, once the client has had a chance to read it."""
        if self._is_ending:
            return
        self._is_ending = True
        self._arriving.clear()
        self._stall.start()
        if self._is_between and not self._unread:
            self.transport.close()
            return
        self._unread.clear()
        self.flow.resume_reading()  # what comes is thrown away
        self.transport.write_eof()
        self._arriving.set(min(LINGER_S, self._shared.client_timeout_s), self.transport.abort)

    def stop_keeping_alive(self) -> None:
        """The answer that is being made, if one is, will be the last."""
        if self._has_request():
            self._keeps_alive = self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """For the server at its end.  A client is cut, and its task ends, before uvicorn would cancel the task."""
        self.stop_keeping_alive()
        if self._is_ending:
            self.transport.close()
        elif not self._is_between:
            self._refuse(EngineUnavailable("the server is shutting down"))
        elif not self._has_request():
            self._unread.clear()
            self.end()
        self._last.set(LAST_READ_S, self._cut)

    # --- bytes in --------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._unread += data
        self._advance()
        if len(self._unread) > self._shared.max_ahead_bytes:
            logger.info("a client sent %d bytes ahead of its answer: cut", len(self._unread))
            self._cut()

    def _advance(self) -> None:
        """Parse what has come, up to the end of a request that must be answered first."""
        try:
            while self._unread and not (self._is_ending or self._is_answering()):
                self._parse_some()
        except EverystepError as error:
            self._refuse(error)
        if not (self._is_between or self._is_ending or self._arriving.is_set):
            self._arriving.set(self._shared.client_timeout_s, self._on_slow_sender)

    def _is_answering(self) -> bool:
        return self._is_between and self._has_request()

    def _parse_some(self) -> None:
        if self._is_between:
            if self._unread[0] in BLANKS:  # some clients send an empty line behind a body
                self._unread = self._unread.lstrip(BLANKS)
                return
            self._is_between = False
            self._arriving.clear()
        try:
            self.parser.feed_data(self._framing.take(self._unread))
        except httptools.HttpParserUpgrade:
            if self._ignores_upgrade:
                self._read_body_in_spite_of_upgrade()
        except httptools.HttpParserError as error:
            raise complaint(error) from error

    def _on_slow_sender(self) -> None:
        if self.flow.read_paused:  # the application takes its time
            self._arriving.set(self._shared.client_timeout_s, self._on_slow_sender)
        else:
            limit_s = self._shared.client_timeout_s
            self._refuse(ClientTooSlow(f"the request took longer than {limit_s:g} s to arrive (--client-timeout)"))

    def _refuse(self, error: EverystepError) -> None:
        """Answer in the application's stead, if it hasn't begun to."""
        has_head = not (self._is_between or self._is_in_head)
        request_id = request_id_of(self.scope) if has_head else fresh_request_id()
        logger.debug("request %s: its connection is ended: %s", request_id, error.message)
        if self._has_request() and self.cycle.response_started:
            self._cut()
            return
        self._forget_request()
        self.transport.write(closing_reply(error, self._target(), request_id, self.server_state.default_headers))
        self.end()

    def _target(self) -> bytes:
        return b"" if self._is_between or self.scope is None else self.url

    # --- the parser's callbacks ------------------------------------------------------------------
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._ignores_upgrade = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # trailers could pass for what was checked already
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        check_head(self.parser.get_http_version(), self.headers)
        self.url = with_path(self.url)
        num_bytes = announced_bytes(self.headers)
        self._ignores_upgrade = self.parser.should_upgrade() and num_bytes != 0
        super().on_headers_complete()
        self._framing.start_body(num_bytes)
        self.cycle.transport = self._outlet  # type: ignore[assignment]
        if self.parser.get_http_version() == "1.0":
            self.cycle.waiting_for_100_continue = False
            self.cycle.send = Unframed(self.cycle)  # type: ignore[method-assign]
        # An answer before the body has come whole says that the connection ends with it.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        self._framing.saw_body(len(body))
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._framing.saw_chunk()

    def on_chunk_complete(self) -> None:
        self._framing.saw_chunk()

    def on_message_complete(self) -> None:
        if self._ignores_upgrade:
            return
        super().on_message_complete()
        self._is_between = True
        self._arriving.clear()
        self._framing.start_head()
        self.parser = self._full_parser
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive and self._shared.keeps_alive

    def _read_body_in_spite_of_upgrade(self) -> None:
        """A server may ignore an upgrade; the parser can't: it takes what follows for another protocol's.

        Some clients ask for HTTP/2 so in each first request.
        """
        self._ignores_upgrade = False
        num_bytes = announced_bytes(self.headers)
        framing = b"transfer-encoding: chunked" if num_bytes is None else b"content-length: %d" % num_bytes
        self.parser = httptools.HttpRequestParser(_BodyOnly(self))
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")

    # --- the response ----------------------------------------------------------------------------
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._is_ending:
            return
        self._advance()
        if self._is_between and not (self._is_ending or self._is_answering()):
            self._arriving.set(self._shared.keep_alive_s, self.end)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._is_ending:
            self._stall.stop()

    def _give_up(self) -> None:
        logger.info("a client took in nothing for %g s: its connection is ended", self._shared.client_timeout_s)
        self._cut()


class _BodyOnly:
    """Passes on what a parser finds behind a head."""

    def __init__(self, connection: HttpConnection) -> None:
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_chunk_complete = connection.on_chunk_complete
        self.on_message_complete = connection.on_message_complete
