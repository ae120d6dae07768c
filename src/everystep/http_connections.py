"""What connections share, and what each may leave with the kernel.

Owns the bounds of one server.  Ignorant of what is said on a connection.
"""

from __future__ import annotations

import asyncio
import math
import socket
from dataclasses import dataclass, field

UNSENT_BYTES = 65536  # that the kernel takes for a client who reads slowly; its own bound is megabytes
MAX_KERNEL_S = 32767  # Linux takes no longer times
NUM_PROBES = 3  # unanswered questions after which a silent client is gone


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


def set_kernel_bounds(transport: asyncio.Transport, client_timeout_s: float) -> None:
    """What the kernel may hold of an answer, and how long it may wait for a client that has vanished.

    What isn't on its way yet waits on our side, where its progress is watched.  A client whose machine or network is
    gone closes nothing: the kernel asks it after a timeout of silence, and gives it up after another.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    whole_s = math.ceil(min(client_timeout_s, MAX_KERNEL_S))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {
        "TCP_NOTSENT_LOWAT": UNSENT_BYTES,
        "TCP_KEEPIDLE": whole_s,
        "TCP_KEEPINTVL": math.ceil(whole_s / NUM_PROBES),
        "TCP_KEEPCNT": NUM_PROBES,
        "TCP_USER_TIMEOUT": 2000 * whole_s,  # for what was sent; our own watch on readers comes first
    }.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has each
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
