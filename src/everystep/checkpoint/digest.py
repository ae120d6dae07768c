"""The content key of files: SHA-256, remembered as long as size, time and inode stay the same.

Owns the small files that remember.  Ignorant of what is hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

CHUNK_BYTES = 2**20


def sha256_of(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """Hex digest of a file's content; ``on_bytes`` is told of each chunk's size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            on_bytes(len(chunk))
    return digest.hexdigest()


def remembered_sha256(path: Path, cache_dir: Path) -> str:
    """As :func:`sha256_of`, but a file that looks unchanged isn't read again."""
    stat = path.stat()
    place = str(path.resolve())
    facts = [place, stat.st_size, stat.st_mtime_ns, stat.st_ino]
    memory = cache_dir / "digests" / f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"
    try:
        known = json.loads(memory.read_text())
        if known["facts"] == facts:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing is remembered: read the file
    digest = sha256_of(path)
    with contextlib.suppress(OSError):  # a cache that can't be written only costs time
        write_atomically(memory, json.dumps({"facts": facts, "sha256": digest}).encode())
    return digest


def write_atomically(path: Path, data: bytes) -> None:
    """The whole content or nothing, whatever dies meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
