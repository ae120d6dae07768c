"""What connections share, and what each may leave with the kernel.

Owns the bounds of one server.  Ignorant of what is said on a connection.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

UNSENT_BYTES = 65536  # that the kernel takes for a client who reads slowly; its own bound is megabytes


@dataclass
class Connections:
    """What all connections of a server share."""

    client_timeout_s: float
    keep_alive_s: float
    max_open: int
    max_refused: int  # connections beyond ``max_open`` that are told so; those beyond both are cut
    max_ahead_bytes: int  # that a client may send while its request is being answered
    keeps_alive: bool = True  # False at the server's end
    refused: set[asyncio.Protocol] = field(default_factory=set)


def bound_unsent(transport: asyncio.Transport) -> None:
    """What isn't on its way yet waits on our side, where its progress is watched."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    sock = transport.get_extra_info("socket")
    if option is not None and sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)
