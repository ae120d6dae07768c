"""API keys as the server keeps them: hashed.  Where they come from: settings, and a file of keys.

Owns what a key may look like, its hash, and the file's form.  Ignorant of HTTP.  No message here shows a key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

from everystep.errors import ConfigError

logger = logging.getLogger(__name__)

HIDDEN = "**********"
MAX_LENGTH = 4096  # longer ones wouldn't pass what servers and proxies take as a header
MAX_KEYS = 256  # each request is compared with every one
SHORT = 16  # characters; below, a key can be guessed by trying
MAX_FILE_BYTES = 2**20
SALT_BYTES = 16
GROUP_BITS = stat.S_IRGRP | stat.S_IWGRP
OTHERS_BITS = stat.S_IROTH | stat.S_IWOTH
ACCESS_LIST = "system.posix_acl_access"


class HashedKey:
    """A key that can be recognised and not be read.  Each has a salt of its own, so equal keys look different.

    The hash is a quick one (keyed BLAKE2b), for it is computed at each request: a key's safety in a dump of the
    memory is its length.  No dataclass: settings that are dumped would take it apart.
    """

    __slots__ = ("_digest", "_salt", "is_short")

    def __init__(self, key: str) -> None:
        """Raises :class:`ValueError`, whose words don't hold the key, for what can't be one."""
        check_key(key)
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._digest = _digest(self._salt, key.encode("ascii"))
        self.is_short = len(key) < SHORT

    def matches(self, candidate: bytes) -> bool:
        """In a time that depends on the candidate's length alone, and not on that of one too long to be a key."""
        return hmac.compare_digest(self._digest, _digest(self._salt, candidate[: MAX_LENGTH + 1]))

    def __repr__(self) -> str:
        return f"HashedKey({HIDDEN})"


def _digest(salt: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(key, key=salt, digest_size=32).digest()


def check_key(key: str) -> None:
    """Raise :class:`ValueError` for what no client could send as a header, or nobody could mean."""
    if not key:
        raise ValueError("a key must not be empty")
    if len(key) > MAX_LENGTH:
        raise ValueError(f"a key of {len(key)} characters is over the limit of {MAX_LENGTH}")
    if not all("!" <= character <= "~" for character in key):
        raise ValueError("a key must be of printable ASCII characters without spaces")


def read_key_file(path: Path) -> tuple[HashedKey, ...]:
    """The keys in a file, one a line; blank lines and those that begin with ``#`` are passed over.

    Raises :class:`ConfigError` for a file that can't be read, isn't UTF-8 or holds no key, and for a line that is none.
    """
    keys = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        try:
            keys.append(HashedKey(words))
        except ValueError as error:
            raise _wrong(f"{path}, line {number}: {error}") from None
    if not keys:
        raise _wrong(f"{path} holds no key")
    _warn_if_open_to_others(path)
    return tuple(keys)


def _read_text(path: Path) -> str:
    """At most :data:`MAX_FILE_BYTES`: a device or a log named by mistake doesn't fill the memory."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _wrong(f"{path} can't be read: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise _wrong(f"{str(path)!r} can't be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise _wrong(f"{path} has over {MAX_FILE_BYTES} bytes, the most that is read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:  # which shows the bytes
        raise _wrong(f"{path} isn't UTF-8 text") from None


def _warn_if_open_to_others(path: Path) -> None:
    if os.name == "posix" and path.exists() and _is_open_to_others(path):
        logger.warning("api_key_file %s can be read or written by others than its owner: chmod 600", path)


def _is_open_to_others(path: Path) -> bool:
    """With an access list, as systemd's credentials have one, the group's bits are the list's mask and tell nothing."""
    try:
        is_listed = ACCESS_LIST in os.listxattr(path)
    except (OSError, AttributeError):  # a file system, or a system, without such lists
        is_listed = False
    return bool(path.stat().st_mode & (OTHERS_BITS if is_listed else OTHERS_BITS | GROUP_BITS))


def _wrong(words: str) -> ConfigError:
    return ConfigError(f"api_key_file {words}", param="api_key_file")
