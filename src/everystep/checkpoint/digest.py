"""The content key of files: SHA-256, remembered as long as size, time and inode stay the same.

Owns the small files that remember.  Ignorant of what is hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

CHUNK_BYTES = 2**20


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: Path, cache_dir: Path) -> str:
    """As :func:`sha256_of`, but a file that looks unchanged isn't read again."""
    try:
        known = json.loads(_memory_of(path, cache_dir).read_text())
        if known["facts"] == _facts(path):
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing is remembered: read the file
    digest = sha256_of(path)
    remember_sha256(path, cache_dir, digest)
    return digest


def remember_sha256(path: Path, cache_dir: Path, digest: str) -> None:
    """Remember a digest that the caller computed of the file as it is now."""
    entry = json.dumps({"facts": _facts(path), "sha256": digest}).encode()
    with contextlib.suppress(OSError):  # a cache that can't be written only costs time
        write_atomically(_memory_of(path, cache_dir), entry)


def _facts(path: Path) -> list[str | int]:
    stat = path.stat()
    return [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino]


def _memory_of(path: Path, cache_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    return cache_dir / "digests" / f"{name}.json"


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
