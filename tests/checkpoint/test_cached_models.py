"""The list of models: our cache and the hub's, damaged entries among whole ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from checkpoint.made_gguf import write_model
from everystep.checkpoint import ListedModel, cached_models, hf_folder, open_checkpoint
from everystep.checkpoint.converted import CONVERTER_VERSION

TINY = Path(__file__).parents[1] / "golden" / "tiny"
KEY = "0123456789abcdef0123456789abcdef"
DEFAULT_KEY = "b179c9523d0e6a0f98a330c7562b6827"  # of the default model's file
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache, not there yet."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def add_to_hub(hub: Path, repo: str, folder: Path, *, commit: str = COMMIT, ref: str | None = "main") -> Path:
    """As the client lays it out: blobs, a snapshot of links to them, a reference."""
    root = hub / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir(exist_ok=True)
    for path in folder.iterdir():
        blob = root / "blobs" / f"{path.name}-of-{folder.name}"
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    if ref is not None:
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / ref).write_text(commit)
    return snapshot


def add_built(cache: Path, name: str, num_bytes: int, claimed: int) -> Path:
    folder = cache / "built" / name
    folder.mkdir(parents=True)
    (folder / "arrays.bin").write_bytes(bytes(num_bytes))
    (folder / "index.json").write_text(json.dumps({"num_bytes": claimed, "arrays": {}}))
    return folder


def only(models: list[ListedModel]) -> ListedModel:
    (model,) = models
    return model


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_an_absent_cache_has_no_models(tmp_path: Path) -> None:
    assert cached_models(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "hub").mkdir()
    assert cached_models(tmp_path) == []


def test_a_file_is_listed_by_the_name_that_serves_it(tmp_path: Path) -> None:
    made = write_model(make_parent(tmp_path / "models" / "smollm2-135m" / "any.gguf"))
    os.utime(made.path, (1000, 2000))
    model = only(cached_models(tmp_path))
    assert (model.name, model.kind, model.form, model.problem) == ("smollm2-135m", "file", "llama", None)
    assert (model.num_bytes, model.path, model.last_used_s) == (made.path.stat().st_size, made.path, 2000)
    assert only(cached_models(tmp_path)).last_used_s == 2000  # to be listed is no use


def make_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return path


def test_a_converted_folder_is_listed_by_what_it_was_made_of(tmp_path: Path) -> None:
    path = write_model(tmp_path / "mine.gguf").path
    folder = hf_folder(open_checkpoint(str(path), tmp_path), tmp_path)
    model = only(cached_models(tmp_path))
    assert (model.name, model.kind, model.form, model.problem) == (str(path), "converted", "llama", None)
    assert (model.num_bytes, model.path) == (size_of(folder), folder)
    os.utime(folder / "model.safetensors", (3000, 2000))
    assert [only(cached_models(tmp_path)).last_used_s for _ in range(2)] == [3000, 3000]


def test_built_weights_are_listed_by_model_and_precision(tmp_path: Path) -> None:
    add_built(tmp_path, f"{DEFAULT_KEY}-int8-f16-ov2026.4.1-v3", 100, 100)
    folder = add_built(tmp_path, f"{KEY}-bf16-f16-ov2026.4.1-v3", 50, 50)
    unknown, default = cached_models(tmp_path)
    assert (default.name, default.kind, default.form, default.problem) == ("smollm2-135m", "built", "int8", None)
    assert (unknown.name, unknown.form, unknown.num_bytes) == (KEY[:12], "bf16", size_of(folder))


def test_a_snapshot_of_a_causal_model_is_listed_with_what_it_suggests(tmp_path: Path, hub: Path) -> None:
    folder = shutil.copytree(TINY / "qwen3", tmp_path / "qwen3")
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.6, "top_k": 20}')
    snapshot = add_to_hub(hub, "owner/model", folder)
    model = only(cached_models(tmp_path))
    assert (model.name, model.kind, model.form, model.problem) == ("owner/model", "hub", "qwen3", None)
    assert (model.num_bytes, model.path) == (size_of(folder), snapshot)
    assert model.suggested_sampling == {"temperature": 0.6, "top_k": 20}


def test_snapshots_are_named_by_branch_tag_or_commit_and_share_no_bytes(tmp_path: Path, hub: Path) -> None:
    add_to_hub(hub, "owner/model", TINY / "llama", ref="v2")
    second = "1" * 40
    shared = hub / "models--owner--model" / "snapshots" / second
    shutil.copytree(hub / "models--owner--model" / "snapshots" / COMMIT, shared, symlinks=True)
    models = cached_models(tmp_path)
    assert {model.name for model in models} == {"owner/model@v2", f"owner/model@{second}"}
    assert sorted(model.num_bytes for model in models) == [0, size_of(TINY / "llama")]


def test_what_is_no_causal_model_isn_t_listed(tmp_path: Path, hub: Path) -> None:
    encoder = shutil.copytree(TINY / "llama", tmp_path / "encoder")
    (encoder / "config.json").write_text('{"architectures": ["BertForMaskedLM"], "model_type": "bert"}')
    add_to_hub(hub, "owner/encoder", encoder)
    words = tmp_path / "words"
    words.mkdir()
    (words / "data.json").write_text("{}")
    add_to_hub(hub, "owner/words", words)
    assert cached_models(tmp_path) == []


def test_damaged_entries_are_lines_that_say_so(tmp_path: Path, hub: Path) -> None:
    broken_file = make_parent(tmp_path / "models" / "smollm2-135m" / "m.gguf")
    broken_file.write_bytes(b"GGUF")
    add_built(tmp_path, f"{KEY}-int8-f16-ov2026.4.1-v3", 99, 100)
    (tmp_path / "built" / "something else").mkdir()
    (tmp_path / "converted" / f"{KEY}-v{CONVERTER_VERSION}").mkdir(parents=True)
    half = shutil.copytree(TINY / "qwen3", tmp_path / "half")
    min(half.glob("model-*.safetensors")).unlink()
    add_to_hub(hub, "owner/half", half)
    pickles = shutil.copytree(TINY / "llama", tmp_path / "pickles")
    (pickles / "model.safetensors").rename(pickles / "pytorch_model.bin")
    add_to_hub(hub, "owner/pickles", pickles)
    garbled = shutil.copytree(TINY / "llama", tmp_path / "garbled")
    (garbled / "config.json").write_text("{")
    add_to_hub(hub, "owner/garbled", garbled)
    (hub / "models--owner--empty").mkdir()
    problems = {(model.kind, model.name): model.problem or "" for model in cached_models(tmp_path)}
    expected = {
        ("file", "m.gguf"): "corrupt or cut short",
        ("built", f"{KEY}-int8-f16-ov2026.4.1-v3"): "damaged",
        ("built", "something else"): "not one of the runner's folders",
        ("converted", f"{KEY}-v{CONVERTER_VERSION}"): "damaged",
        ("hub", "owner/half"): "incomplete: everystep pull owner/half goes on",
        ("hub", "owner/pickles"): "pickles, which are never loaded",
        ("hub", "owner/garbled"): "isn't valid JSON",
        ("hub", "?"): "corrupt: Snapshots dir doesn't exist",
    }
    assert problems.keys() == expected.keys()
    for entry, words in expected.items():
        assert words in problems[entry], entry


def test_what_is_being_written_isn_t_listed(tmp_path: Path) -> None:
    (tmp_path / "built" / ".building-x").mkdir(parents=True)
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / f".{KEY}-v1.lock").touch()
    (tmp_path / "converted" / f".{KEY}-v1.part").mkdir()
    assert cached_models(tmp_path) == []


def test_a_cache_s_place_taken_by_a_file_is_an_empty_cache(tmp_path: Path, hub: Path) -> None:
    for name in ("models", "built", "converted"):
        (tmp_path / name).touch()
    hub.touch()
    assert cached_models(tmp_path) == []
