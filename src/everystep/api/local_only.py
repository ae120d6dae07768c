"""Without a key, only programs of this machine are served, and no web page that its browser happens to show.

Owns what tells them apart.  Anybody's page can send requests to 127.0.0.1, and a name that its owner points there lets
it read the answers too (DNS rebinding).  A browser says whose page it is in ``Host`` and ``Origin``.  Ignorant of keys.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.types import Scope

from everystep.errors import AuthenticationFailed

WAYS_OUT = "set an API key and send it, or start the server with --insecure-no-auth"
SHOWN_CHARACTERS = 100


def check_is_local(scope: Scope, own_host: str) -> None:
    """Raise :class:`AuthenticationFailed` for a request from elsewhere.  ``own_host`` is what the server listens on."""
    address = _address_of(scope)
    if address is not None and not is_loopback(address):
        raise AuthenticationFailed(f"without an API key only 127.0.0.1 is served, not {address}: {WAYS_OUT}")
    if address is None:  # a socket file, or no socket at all: a test, or an application in the same process
        return
    for name, value in scope["headers"]:
        if name in (b"host", b"origin") and not _is_local_name(value, own_host, is_origin=name == b"origin"):
            shown = value.decode("latin-1")[:SHOWN_CHARACTERS]
            raise AuthenticationFailed(
                f"without an API key only requests to and from this machine are served, not with "
                f"{name.decode().title()} {shown!r}: {WAYS_OUT}"
            )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches ``address``, which is no name.  An IPv4 address in IPv6's clothes counts."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def _address_of(scope: Scope) -> str | None:
    """The address that the request came to; ``None`` where the server says none, or something else."""
    address = (scope.get("server") or ("",))[0]
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None


def _is_local_name(value: bytes, own_host: str, *, is_origin: bool) -> bool:
    """Of ``Host: NAME:PORT`` or ``Origin: http://NAME:PORT``, whether ``NAME`` is this machine's."""
    words = value.decode("latin-1").strip()
    try:
        name = urlsplit(words if is_origin else f"//{words}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) or name in ("localhost", own_host.lower()) or name.endswith(".localhost")
