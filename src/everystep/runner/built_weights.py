"""Converted weights, kept on disk and mapped from there.

Owns the cache's files and keys: content of the model, format, version of the library and of this layout.  Converting
streams one array at a time; a mapped array costs memory only where it is read.  Ignorant of graphs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from everystep.architecture import Checkpoint
from everystep.runner.precision import Precision
from everystep.runner.quantise import INT4_GROUP, to_bf16, to_f16, to_int4, to_int8

logger = logging.getLogger(__name__)
LAYOUT_VERSION = 4
ALIGNMENT = 64
BESIDE = ".building-"
EMBEDDINGS = ("embed_tokens.weight", "embed_positions.weight", "wte.weight", "wpe.weight")
HEAD = "lm_head.weight"

Array = npt.NDArray[Any]


class BuiltWeights:
    """Arrays by ``name:part``, read-only, mapped.  Raises :class:`ValueError` if the folder isn't whole.

    The index has a digest of itself and one of the arrays.  Those are read again only if they don't look untouched (by
    size, time and inode), so what a disk changes by itself isn't seen.
    """

    def __init__(self, folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        if index.pop("digest") != _digest_of(index):
            raise ValueError(f"{folder}'s index isn't what was written")
        with (folder / "arrays.bin").open("rb") as file:
            is_untouched = index["facts"] == _facts(file)
            if not is_untouched and hashlib.file_digest(file, "sha256").hexdigest() != index["sha256"]:
                raise ValueError(f"{file.name} isn't what was written")
            if not is_untouched:  # a copy
                _write_index(folder, {**index, "facts": _facts(file)})
            self._entries: dict[str, dict[str, Any]] = index["arrays"]
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Array:
        entry = self._entries[key]
        shape = tuple(entry["shape"])
        flat = np.frombuffer(self._map, entry["dtype"], int(np.prod(shape, dtype=np.int64)), entry["offset"])
        return flat.reshape(shape)

    def release_pages(self) -> None:
        """Drop the pages read so far from memory; a later read fetches them from the file again."""
        self._map.madvise(mmap.MADV_DONTNEED)


def built_weights(checkpoint: Checkpoint, precision: Precision, cache_dir: Path, library: str) -> BuiltWeights:
    """The model's arrays in the precision's format: from the cache, or converted into it."""
    stem = f"{checkpoint.content_key[:32]}-{precision.weights}-{precision.embedding}-"
    folder = cache_dir / "built" / f"{stem}{library}-v{LAYOUT_VERSION}"
    try:
        return BuiltWeights(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if folder.exists() or folder.is_symlink():  # a disk that was full, a copy that was cut
            logger.warning("%s is damaged and is made anew", folder)
            _remove(folder)
    _convert(checkpoint, precision, folder)
    built = BuiltWeights(folder)
    for outdated in folder.parent.glob(f"{stem}*"):
        if outdated != folder:  # a process that still has it mapped keeps its pages
            shutil.rmtree(outdated, ignore_errors=True)
    return built


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _write_index(folder: Path, index: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(index))  # as it will be read
    with contextlib.suppress(PermissionError):  # a cache that may only be read costs time
        (folder / "index.json").write_text(json.dumps({**plain, "digest": _digest_of(plain)}))


def _digest_of(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _facts(file: BinaryIO) -> list[int]:
    """By which a file looks untouched."""
    facts = os.fstat(file.fileno())
    return [facts.st_size, facts.st_mtime_ns, facts.st_ino]


def _convert(checkpoint: Checkpoint, precision: Precision, folder: Path) -> None:
    """Write beside, then move into place; another process that was faster is as good."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent):
        _remove_abandoned(folder.parent)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=BESIDE))
        lock = _lock(beside)
    try:
        entries = {}
        with (beside / "arrays.bin").open("wb") as file:
            for key, array in _converted(checkpoint, precision):
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                entries[key] = {"dtype": array.dtype.str, "shape": array.shape, "offset": file.tell()}
                file.write(np.ascontiguousarray(array).data)
            num_bytes = file.tell()
        with (beside / "arrays.bin").open("rb") as file:
            sha256, facts = hashlib.file_digest(file, "sha256").hexdigest(), _facts(file)
        _write_index(beside, {"num_bytes": num_bytes, "sha256": sha256, "facts": facts, "arrays": entries})
        os.rename(beside, folder)
    except OSError:
        if not (folder / "index.json").is_file():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time looks for what others abandoned, and begins its own."""
    lock = _lock(folder)
    try:
        yield
    finally:
        os.close(lock)


def _lock(folder: Path, flags: int = 0) -> int:
    """A descriptor that holds the folder locked until it is closed, also by its process's death."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(parent: Path) -> None:
    """Hundreds of megabytes each, left by processes that were killed within: nobody holds their lock."""
    for beside in parent.glob(f"{BESIDE}*"):
        with contextlib.suppress(OSError):
            os.close(_lock(beside, fcntl.LOCK_NB))
            shutil.rmtree(beside)


def _converted(checkpoint: Checkpoint, precision: Precision) -> Iterator[tuple[str, Array]]:
    weights = checkpoint.weights
    for name in weights.names():
        array = weights.load(name)
        if name.endswith(EMBEDDINGS):
            yield f"{name}:{precision.embedding}", to_f16(array) if precision.embedding == "f16" else array
            if checkpoint.architecture.is_head_tied and name.endswith(("embed_tokens.weight", "wte.weight")):
                yield from _linear(HEAD, array, precision)
        elif array.ndim == 2:
            yield from _linear(name, array, precision)
        else:
            yield f"{name}:f32", array


def _linear(name: str, array: npt.NDArray[np.float32], precision: Precision) -> Iterator[tuple[str, Array]]:
    """A linear weight ``[out, in]`` in the precision's format.

    At int4 the head stays int8, since it loses most (a divergence of 0.06 instead of 0.005), and so does what groups
    don't divide.
    """
    if precision.weights == "int4" and array.shape[1] % INT4_GROUP == 0 and name != HEAD:
        packed = to_int4(array)
        yield f"{name}:int4", packed.packed
        yield f"{name}:int4.scales", packed.scales
        yield f"{name}:int4.zeros", packed.zeros
    elif precision.weights in ("int8", "int4"):
        quantised = to_int8(array)
        yield f"{name}:int8", quantised.values
        yield f"{name}:int8.scales", quantised.scales
    elif precision.weights == "bf16":
        yield f"{name}:bf16", to_bf16(array)
    elif precision.weights == "f16":
        yield f"{name}:f16", to_f16(array)
    else:
        yield f"{name}:f32", array
