"""A Hugging Face folder as a checkpoint: config.json, safetensors (sharded too), tokenizer.json.

Owns which files count and the arrays' canonical names.  Refuses folders that hold pickles only.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.architecture import Architecture, Checkpoint, Family, Weights
from everystep.checkpoint.digest import remembered_sha256
from everystep.checkpoint.expected import check_shapes, expected_shapes
from everystep.checkpoint.fields import read_fields, read_fields_if_there
from everystep.checkpoint.hf_config import read_architecture
from everystep.checkpoint.hf_outline import read_outline
from everystep.checkpoint.hf_tokenizer import check_tokenizer, read_tokenizer
from everystep.checkpoint.safetensors_file import SafetensorsFile
from everystep.errors import ModelError, UnsupportedModel

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
GPT2_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
HEAD = "lm_head.weight"
EMBEDDINGS: dict[str, str] = {"opt": "model.decoder.embed_tokens.weight", "gpt2": "transformer.wte.weight"}
PREFIXES: dict[str, str] = {"opt": "model.", "gpt2": "transformer."}  # some files leave these off
BODIES: dict[str, tuple[str, ...]] = {"opt": ("decoder.",), "gpt2": ("wte.", "wpe.", "h.", "ln_f.")}


def open_hf_folder(folder: Path, name: str, cache_dir: Path) -> Checkpoint:
    """Open a folder.  Raises :class:`ModelError` that names what is absent or corrupt.

    A family without a graph of ours is no error here: reading its architecture or weights raises.
    """
    config = read_fields(folder / "config.json")
    outline = read_outline(config)
    files = open_weight_files(folder)

    @functools.cache
    def architecture() -> Architecture:
        return read_architecture(config)

    @functools.cache
    def weights() -> Weights:
        return HfWeights(files, architecture(), str(folder))

    with contextlib.suppress(UnsupportedModel):
        weights()  # what is corrupt is said now
    return Checkpoint(
        name=name,
        path=str(folder),
        content_key=_content_key([folder / "config.json", *(file.path for file in files)], cache_dir),
        outline=outline,
        read_architecture=architecture,
        read_weights=weights,
        read_tokenizer=lambda: read_tokenizer(folder, config),
        check_tokenizer=lambda: check_tokenizer(folder),
        generation_defaults=read_fields_if_there(folder / "generation_config.json").as_dict(),
    )


class HfWeights:
    """Arrays of one or several safetensors files by canonical name: those that the architecture needs, no others.

    Files hold more: GPT-2's causal masks, a head though it is tied.
    """

    def __init__(self, files: list[SafetensorsFile], architecture: Architecture, source: str) -> None:
        self._source = source
        self._family = architecture.family
        self._places = {canonical_name(self._family, name): (file, name) for file in files for name in file.arrays}
        if architecture.is_head_tied and HEAD in self._places:  # one array under two names, of which either is stored
            self._places.setdefault(embedding_name(self._family), self._places[HEAD])
        check_shapes(architecture, {name: self._shape(name) for name in self._places}, source)
        self._places = {name: self._places[name] for name in expected_shapes(architecture)}
        for file, stored in self._places.values():
            file.check_readable(stored)

    def names(self) -> Iterable[str]:
        return self._places

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def load(self, name: str) -> npt.NDArray[np.float32]:
        if name not in self._places:
            raise ModelError(f"{self._source} has no tensor {name!r}")
        file, stored = self._places[name]
        array = file.load(stored)
        return np.ascontiguousarray(array.T) if self._is_transposed(name) else array

    def _shape(self, name: str) -> tuple[int, ...]:
        file, stored = self._places[name]
        shape = file.arrays[stored].shape
        return shape[::-1] if self._is_transposed(name) else shape

    def _is_transposed(self, name: str) -> bool:
        return self._family == "gpt2" and name.endswith(GPT2_TRANSPOSED)


def canonical_name(family: Family, stored: str) -> str:
    return PREFIXES[family] + stored if stored.startswith(BODIES.get(family, ())) else stored


def embedding_name(family: Family) -> str:
    return EMBEDDINGS.get(family, "model.embed_tokens.weight")


def open_weight_files(folder: Path) -> list[SafetensorsFile]:
    names = weight_names(folder)
    if not names:
        pickles = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        only = "; it holds pickles, which are never loaded: convert them to safetensors" if pickles else ""
        raise ModelError(f"{folder} has no safetensors file{only}")
    for name in names:
        if Path(name).name != name or not os.path.isfile(folder / name):  # also where a name is too long
            raise ModelError(f"{folder} lacks the shard {name!r:.200} that its index names")
    return [SafetensorsFile(folder / name) for name in names]


def weight_names(folder: Path) -> list[str]:
    """By the index if there is one; a lone file needs none."""
    index = read_fields_if_there(folder / INDEX)
    weight_map = index.raw("weight_map")
    if (folder / INDEX).is_file():
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise index.bad("weight_map", "an object of file names")
        return sorted(set(weight_map.values()))
    if (folder / SINGLE).is_file():
        return [SINGLE]
    return sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())


def _content_key(paths: list[Path], cache_dir: Path) -> str:
    digests = "".join(remembered_sha256(path, cache_dir) for path in paths)
    return hashlib.sha256(digests.encode()).hexdigest()
