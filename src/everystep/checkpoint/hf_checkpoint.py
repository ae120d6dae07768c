"""A Hugging Face folder as a checkpoint: config.json, safetensors (sharded too), tokenizer.json.

Owns the arrays' canonical names and the tokenizer's and generation's side files.  Refuses folders that hold pickles only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everystep.architecture import Architecture, Checkpoint, TokenizerData
from everystep.checkpoint.digest import remembered_sha256
from everystep.checkpoint.expected import check_shapes
from everystep.checkpoint.hf_config import read_architecture
from everystep.checkpoint.safetensors_file import SafetensorsFile
from everystep.errors import ModelError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
GPT2_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
PREFIXES = {"opt": "model.", "gpt2": "transformer."}  # some files leave these off
BODIES = {"opt": "decoder.", "gpt2": ("wte.", "wpe.", "h.", "ln_f.")}


def open_hf_folder(folder: Path, name: str, cache_dir: Path) -> Checkpoint:
    """Open a folder.  Raises :class:`ModelError` that names what is absent or not supported."""
    config = read_json(folder / "config.json")
    if config is None:
        raise ModelError(f"{folder} has no config.json")
    architecture = read_architecture(config, str(folder))
    files = _weight_files(folder)
    weights = HfWeights(files, architecture)
    check_shapes(architecture, {name: weights.shape(name) for name in weights.names()}, str(folder))
    return Checkpoint(
        name=name,
        path=str(folder),
        content_key=_content_key([folder / "config.json", *(file.path for file in files)], cache_dir),
        architecture=architecture,
        weights=weights,
        read_tokenizer=lambda: _read_tokenizer(folder, config),
        generation_defaults=read_json(folder / "generation_config.json") or {},
    )


class HfWeights:
    """Arrays of one or several safetensors files by canonical name."""

    def __init__(self, files: list[SafetensorsFile], architecture: Architecture) -> None:
        self._family = architecture.family
        self._places = {self._canonical(name): (file, name) for file in files for name in file.arrays}

    def names(self) -> Iterable[str]:
        return self._places

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def shape(self, name: str) -> tuple[int, ...]:
        file, stored = self._places[name]
        shape = file.arrays[stored].shape
        return shape[::-1] if self._is_transposed(name) else shape

    def load(self, name: str) -> npt.NDArray[np.float32]:
        if name not in self._places:
            raise ModelError(f"the model has no tensor {name!r}")
        file, stored = self._places[name]
        array = file.load(stored)
        return np.ascontiguousarray(array.T) if self._is_transposed(name) else array

    def _is_transposed(self, name: str) -> bool:
        return self._family == "gpt2" and name.endswith(GPT2_TRANSPOSED)

    def _canonical(self, name: str) -> str:
        return PREFIXES[self._family] + name if name.startswith(BODIES.get(self._family, ())) else name


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; ``None`` where there is no such file."""
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object")
    return value


def _weight_files(folder: Path) -> list[SafetensorsFile]:
    index = read_json(folder / INDEX)
    if index is not None:
        names = sorted(set(index.get("weight_map", {}).values()))
    elif (folder / SINGLE).is_file():
        names = [SINGLE]
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickles = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        only = "; it holds pickles, which are never loaded: convert them to safetensors" if pickles else ""
        raise ModelError(f"{folder} has no safetensors file{only}")
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelError(f"{folder} lacks the shard {name!r} that its index names")
    return [SafetensorsFile(folder / name) for name in names]


def _content_key(paths: list[Path], cache_dir: Path) -> str:
    digests = "".join(remembered_sha256(path, cache_dir) for path in paths)
    return hashlib.sha256(digests.encode()).hexdigest()


def _read_tokenizer(folder: Path, config: dict[str, Any]) -> TokenizerData:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no tokenizer.json")
    side = read_json(folder / "tokenizer_config.json") or {}
    generation = read_json(folder / "generation_config.json") or {}
    return TokenizerData(
        tokenizer_json=path.read_text(encoding="utf-8"),
        bos_token=_token_text(side.get("bos_token")),
        eos_token=_token_text(side.get("eos_token")),
        unk_token=_token_text(side.get("unk_token")),
        pad_token=_token_text(side.get("pad_token")),
        add_bos=side.get("add_bos_token"),
        add_eos=side.get("add_eos_token"),
        chat_template=_chat_template(folder, side),
        bos_token_id=config.get("bos_token_id"),
        eos_token_ids=_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
    )


def _token_text(value: Any) -> str | None:
    return value.get("content") if isinstance(value, dict) else value


def _chat_template(folder: Path, side: dict[str, Any]) -> str | None:
    """The template file wins over the config's; of several named ones the default is taken."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = side.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)
