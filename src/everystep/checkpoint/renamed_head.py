"""A Hugging Face folder whose one array of a tied embedding is stored under the head's name only.

Owns the telling of such folders, and the copy in which the array has the embedding's name.  The hub's converter makes
them: of names that share an array it keeps one, for OPT the head's.  Our own reader takes either name, and so does
transformers since its release 5; vLLM finds no embedding and computes with zeros, without a word.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from everystep.architecture import Checkpoint, Family
from everystep.checkpoint.download import Progress
from everystep.checkpoint.fields import read_fields
from everystep.checkpoint.hf_checkpoint import (
    HEAD,
    INDEX,
    PREFIXES,
    canonical_name,
    embedding_name,
    open_weight_files,
)
from everystep.checkpoint.safetensors_file import SafetensorsFile
from everystep.checkpoint.safetensors_writer import copy_renamed
from everystep.errors import UnsupportedModel


def stores_head_alone(checkpoint: Checkpoint) -> bool:
    """Of a family that we know the names of; another's folder is left as it is."""
    try:
        architecture = checkpoint.architecture
    except UnsupportedModel:
        return False
    files = open_weight_files(Path(checkpoint.path))
    names = {canonical_name(architecture.family, name) for file in files for name in file.arrays}
    return architecture.is_head_tied and HEAD in names and embedding_name(architecture.family) not in names


def write_renamed(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
    """Links to the model's own files, but for the one that holds the array and the index of all."""
    source = Path(checkpoint.path)
    files = open_weight_files(source)
    names = {HEAD: _stored_name(checkpoint.architecture.family, files)}
    (holder,) = (file for file in files if HEAD in file.arrays)
    for path in sorted(source.iterdir()):
        is_ours = path.name in (holder.path.name, INDEX) or (folder / path.name).exists()
        if path.is_file() and not is_ours:
            (folder / path.name).symlink_to(path.resolve())
    if (source / INDEX).is_file():
        (folder / INDEX).write_text(json.dumps(_renamed_index(source / INDEX, names)), "utf-8")
    progress.stage(f"naming the embedding of {checkpoint.name}", holder.path.stat().st_size - holder.data_start)
    copy_renamed(holder, folder / holder.path.name, names, progress.advance)


def _stored_name(family: Family, files: list[SafetensorsFile]) -> str:
    """With or without the first part, as the file has its other names."""
    full, prefix = embedding_name(family), PREFIXES.get(family, "")
    stored = {name for file in files for name in file.arrays}
    is_bare = any(canonical_name(family, name) != name for name in stored)
    return full.removeprefix(prefix) if is_bare else full


def _renamed_index(path: Path, names: dict[str, str]) -> dict[str, Any]:
    index = read_fields(path).as_dict()
    return {**index, "weight_map": {names.get(name, name): file for name, file in index["weight_map"].items()}}
