"""Folders that store a tied embedding under the head's name: other runners get a copy that they read rightly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from everystep.checkpoint import cached_models, hf_folder, open_checkpoint

TINY = Path(__file__).parents[1] / "golden" / "tiny"


def write_head_alone(folder: Path, *, prefix: str = "", is_sharded: bool = False) -> dict[str, Any]:
    """OPT as the hub's converter leaves it; gives the arrays by the names that a reader wants."""
    shutil.copytree(TINY / "opt", folder)
    weights = open_checkpoint(str(folder), folder.parent / "digests").weights
    wanted = {name.removeprefix(prefix): weights.load(name) for name in weights.names()}
    stored = {"lm_head.weight" if name.endswith("embed_tokens.weight") else name: a for name, a in wanted.items()}
    if not is_sharded:
        save_file(stored, folder / "model.safetensors", {"format": "pt"})
        return wanted
    (folder / "model.safetensors").unlink()
    shards = {name: f"model-{1 + ('lm_head' in name)}.safetensors" for name in stored}
    for file in set(shards.values()):
        save_file({name: stored[name] for name in stored if shards[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return wanted


def arrays_of(folder: Path) -> dict[str, Any]:
    return {name: array for path in folder.glob("*.safetensors") for name, array in load_file(path).items()}


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_the_copy_has_the_embedding_s_name_and_the_same_numbers(prefix: str, is_sharded: bool, tmp_path: Path) -> None:
    wanted = write_head_alone(tmp_path / "opt", prefix=prefix, is_sharded=is_sharded)
    before = {path.name: path.read_bytes() for path in (tmp_path / "opt").iterdir()}
    folder = hf_folder(open_checkpoint(str(tmp_path / "opt"), tmp_path), tmp_path)
    assert folder.parent == tmp_path / "converted"
    found = arrays_of(folder)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    assert {path.name for path in folder.iterdir()} == {*before, "everystep.json"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "opt").iterdir()} == before
    if is_sharded:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["weight_map"].keys() == wanted.keys()
        assert (folder / "model-1.safetensors").is_symlink()


def test_the_copy_is_made_once_and_listed(tmp_path: Path) -> None:
    write_head_alone(tmp_path / "opt")
    checkpoint = open_checkpoint(str(tmp_path / "opt"), tmp_path)
    folder = hf_folder(checkpoint, tmp_path)
    inode = (folder / "model.safetensors").stat().st_ino
    assert hf_folder(checkpoint, tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_ino == inode
    (model,) = (one for one in cached_models(tmp_path) if one.kind == "converted")
    assert (model.name, model.form, model.problem) == (str(tmp_path / "opt"), "opt", None)


def test_a_copy_whose_model_moved_is_made_anew(tmp_path: Path) -> None:
    write_head_alone(tmp_path / "opt")
    folder = hf_folder(open_checkpoint(str(tmp_path / "opt"), tmp_path), tmp_path)
    (tmp_path / "opt").rename(tmp_path / "moved")
    assert not (folder / "config.json").is_file()
    assert hf_folder(open_checkpoint(str(tmp_path / "moved"), tmp_path), tmp_path) == folder
    assert (folder / "config.json").is_file()


@pytest.mark.parametrize("name", ["opt", "gpt2", "llama", "qwen3"])
def test_a_folder_that_everybody_reads_is_handed_on_as_it_is(name: str, tmp_path: Path) -> None:
    assert hf_folder(open_checkpoint(str(TINY / name), tmp_path), tmp_path) == TINY / name


def test_a_family_without_a_graph_of_ours_is_handed_on_as_it_is(tmp_path: Path) -> None:
    write_head_alone(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text()) | {"model_type": "another"}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert hf_folder(open_checkpoint(str(tmp_path / "model"), tmp_path), tmp_path) == tmp_path / "model"
