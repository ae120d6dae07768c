"""Which files of a hub repository are wanted.

Owns the choice: one set of safetensors, the tokenizer, the configs.  Never a pickle, no second copy of the weights
(``original/``, ``onnx/``, ``consolidated.safetensors``).  Ignorant of how anything is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everystep.checkpoint.hf_checkpoint import INDEX, SINGLE, weight_names
from everystep.errors import ModelError

SIDE_FILE = re.compile(r"[^/]+\.(json|jinja|model)|merges\.txt|vocab\.txt")
OTHER_INDEX = re.compile(r".*\.index\.json")
NEEDED = ("config.json", "tokenizer.json")
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """``etag`` is its name among the cache's blobs; ``sha256`` is known for large files."""

    name: str
    num_bytes: int
    etag: str
    sha256: str | None


def side_files(files: Mapping[str, RemoteFile], repo: str) -> list[str]:
    """The small files.  Raises :class:`ModelError` for what can't be served, before a byte of it is fetched."""
    if INDEX not in files and SINGLE not in files:
        raise ModelError(f"{repo} has no {SINGLE} and no {INDEX}, and only these are loaded{_instead(files)}")
    for name in NEEDED:
        if name not in files:
            raise ModelError(f"{repo} has no {name}, which every model needs here")
    return [name for name in files if SIDE_FILE.fullmatch(name) and (name == INDEX or not OTHER_INDEX.fullmatch(name))]


def weight_files(files: Mapping[str, RemoteFile], snapshot: Path, repo: str) -> list[RemoteFile]:
    """The shards that the index names, or the one file; the side files must lie in ``snapshot`` already."""
    names = weight_names(snapshot) or [SINGLE]
    missing = [name for name in names if name not in files]
    if missing:
        raise ModelError(f"{repo} lacks the shard {missing[0]!r} that its index names")
    return [files[name] for name in names]


def _instead(files: Mapping[str, RemoteFile]) -> str:
    """What the repository has in the place of a model's safetensors."""
    kinds = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".onnx")
    found = sorted(name for name in files if name.endswith(kinds))
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"; it has {', '.join(found[:MAX_NAMED])}{more}" if found else ""
