"""Who may reach the server: beyond this machine only with a key, or because somebody said so by name.

Owns the refusal and the warnings at the start.  It asks the socket where it listens, for a name may mean any address.
"""

from __future__ import annotations

import logging
import socket

from everystep.api.local_only import is_loopback
from everystep.api_keys import SHORT
from everystep.config import Settings
from everystep.errors import ConfigError

logger = logging.getLogger(__name__)


def check_exposure(settings: Settings, sock: socket.socket) -> None:
    """Refuse to listen beyond this machine without a key: :class:`ConfigError`.

    ``settings`` hold the keys of the file too; nothing is accepted from ``sock`` before.
    """
    address = str(sock.getsockname()[0])
    num_short = sum(key.is_short for key in settings.api_key)
    if num_short:
        logger.warning(
            "%d of %d API keys have under %d characters: easily guessed", num_short, len(settings.api_key), SHORT
        )
    if settings.api_key or is_loopback(address):
        return
    if not settings.insecure_no_auth:
        raise ConfigError(
            f"--host {settings.host or repr('')} listens on {address}, beyond this machine, and without an API key "
            "everybody would be let in: give --api-key-file PATH, listen on 127.0.0.1, or say --insecure-no-auth",
            param="host",
        )
    logger.warning("OPEN TO THE NETWORK: whoever reaches %s is let in, without a key (--insecure-no-auth)", address)
