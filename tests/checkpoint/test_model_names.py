"""What a model's name means, and the digests that are remembered."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from everystep.checkpoint import default_cache_dir, open_checkpoint
from everystep.checkpoint.digest import remember_sha256, remembered_sha256
from everystep.errors import ModelError


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("EVERYSTEP_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache_dir() == Path("/home/somebody/.cache/everystep")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache_dir() == Path("/xdg/everystep")
    monkeypatch.setenv("EVERYSTEP_CACHE_DIR", "~/mine")
    assert default_cache_dir() == Path("/home/somebody/mine")


@pytest.mark.parametrize("name", ["no-such-model", "./no/such/folder", "/no/such/file.gguf", "a/b/c"])
def test_a_name_that_means_nothing_is_refused_with_what_would(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model") as caught:
        open_checkpoint(name, tmp_path)
    assert repr(name) in caught.value.message
    assert "smollm2-135m" in caught.value.message


def test_a_file_that_is_neither_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"neither a \.gguf file nor a Hugging Face folder"):
        open_checkpoint(str(path), tmp_path)


def test_a_hub_id_without_a_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="somebody/a-model isn't in the hub's cache") as caught:
        open_checkpoint("somebody/a-model", tmp_path)
    assert "\n" not in caught.value.message


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(b"one")
    assert remembered_sha256(path, cache) == hashlib.sha256(b"one").hexdigest()
    remember_sha256(path, cache, "told")
    assert remembered_sha256(path, cache) == "told"  # from memory: the file isn't read
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))  # a clock too coarse to tell the two writes apart would hide the change
    assert remembered_sha256(path, cache) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("memory", ["", "[]", "{}", '{"facts": 1, "sha256": 2}', "\x00"])
def test_a_damaged_memory_is_as_none(memory: str, tmp_path: Path) -> None:
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(b"one")
    remembered_sha256(path, cache)
    (file,) = (cache / "digests").iterdir()
    file.write_text(memory)
    assert remembered_sha256(path, cache) == hashlib.sha256(b"one").hexdigest()


def test_a_cache_that_can_t_be_written_only_costs_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert remembered_sha256(path, tmp_path / "cache") == hashlib.sha256(b"one").hexdigest()
