"""Which files of a hub repository are wanted.

Owns the choice: one set of safetensors, the tokenizer, the configs.  Never a pickle, no second copy of the weights
(``original/``, ``onnx/``, ``consolidated.safetensors``).  Ignorant of how anything is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from everystep.checkpoint.hf_checkpoint import INDEX, SINGLE, weight_names
from everystep.checkpoint.hf_tokenizer import TOKENIZER, has_tokenizer
from everystep.checkpoint.vocab_and_merges import MERGES, VOCAB
from everystep.errors import ModelError

SIDE_FILE = re.compile(r"[^/]+\.(json|jinja|model)|merges\.txt|vocab\.txt")
OTHER_INDEX = re.compile(r".*\.index\.json")
CONFIG = "config.json"
PICKLES = (".bin", ".pt", ".pth")
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """``etag`` is its name among the cache's blobs; ``sha256`` is known for large files."""

    name: str
    num_bytes: int
    etag: str
    sha256: str | None


class OnlyPickles(ModelError):
    """The weights are there, in a form that is never loaded."""


def has_safetensors(names: Container[str]) -> bool:
    return INDEX in names or SINGLE in names


def side_files(files: Mapping[str, RemoteFile], repo: str) -> list[str]:
    """The small files.  Raises :class:`ModelError` for what can't be served, before a byte of it is fetched."""
    if not has_safetensors(files):
        kind = OnlyPickles if any(name.endswith(PICKLES) for name in files) else ModelError
        raise kind(f"{repo} has no {SINGLE} and no {INDEX}, and only these are loaded{_instead(files)}")
    if CONFIG not in files:
        raise ModelError(f"{repo} has no {CONFIG}, which every model needs here")
    if not has_tokenizer(files):
        raise ModelError(f"{repo} has no {TOKENIZER}, nor {VOCAB} and {MERGES} to build it from")
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
    kinds = (".safetensors", *PICKLES, ".gguf", ".msgpack", ".h5", ".onnx")
    found = sorted(name for name in files if name.endswith(kinds))
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"; it has {', '.join(found[:MAX_NAMED])}{more}" if found else ""
