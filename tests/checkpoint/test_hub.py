"""Models of the hub, against a hub on localhost: what is asked for, what goes on where, what is said of faults."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoint.fake_hub import COMMIT, FakeHub, Refusal, point_client_at, running
from everystep.checkpoint import open_checkpoint, pull
from everystep.checkpoint.hub import parse_hub_id
from everystep.errors import ModelError

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny"
DECOYS = {
    "pytorch_model.bin": b"pickle",
    "pytorch_model.bin.index.json": b"{}",
    "consolidated.safetensors": b"the same weights again",
    "original/consolidated.00.pth": b"pickle",
    "original/params.json": b"{}",
    "onnx/model.onnx": b"onnx",
    "README.md": b"# Words",
    "modeling.py": b"raise SystemExit",
}


class Told:
    """Remembers what a progress bar would show."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.steps: list[int] = []

    def stage(self, words: str, total: int | None) -> None:
        self.stages.append((words, total))

    def advance(self, num_bytes: int) -> None:
        self.steps.append(num_bytes)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A sharded model among decoys."""
    with running(FakeHub(files=dict(DECOYS))) as hub:
        hub.add_folder(TINY / "qwen3")
        point_client_at(hub, tmp_path, monkeypatch)
        yield hub


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import close_session, constants

    close_session()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- what is fetched -----------------------------------------------------------------------------
def test_a_sharded_model_comes_without_pickles_code_or_second_copies(hub: FakeHub, tmp_path: Path) -> None:
    told = Told()
    snapshot = pull("owner/model", tmp_path, told)
    assert snapshot == tmp_path / "hub" / "models--owner--model" / "snapshots" / COMMIT
    assert names_in(snapshot) == {path.name for path in (TINY / "qwen3").iterdir()}
    for path in snapshot.iterdir():
        assert path.read_bytes() == (TINY / "qwen3" / path.name).read_bytes()
    assert not any(hub.asked_for(name) for name in DECOYS)
    shards = sum(path.stat().st_size for path in (TINY / "qwen3").glob("*.safetensors"))
    assert told.stages == [("asking the hub for owner/model", None), ("downloading owner/model", shards)]
    assert sum(told.steps) == shards


def test_the_model_opens_without_asking_anybody_once_it_was_pulled(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull("owner/model", tmp_path)
    num_asked = len(hub.asked)
    checkpoint = open_checkpoint("owner/model", tmp_path)
    assert checkpoint.architecture.family == "qwen3"
    assert len(hub.asked) == num_asked
    go_offline(monkeypatch)
    assert open_checkpoint("owner/model", tmp_path).path == checkpoint.path
    assert pull("owner/model", tmp_path) == Path(checkpoint.path)


def test_a_model_that_isn_t_there_is_fetched_when_it_is_opened(hub: FakeHub, tmp_path: Path) -> None:
    assert open_checkpoint("owner/model", tmp_path).architecture.family == "qwen3"
    assert hub.asked_for("config.json")


def test_a_revision_is_asked_for_and_found_again(hub: FakeHub, tmp_path: Path) -> None:
    snapshot = pull(f"owner/model@{COMMIT}", tmp_path)
    num_asked = len(hub.asked)
    assert open_checkpoint(f"owner/model@{COMMIT}", tmp_path).path == str(snapshot)
    assert len(hub.asked) == num_asked


@pytest.mark.parametrize(
    ("name", "repo", "revision"),
    [
        ("o/n", "o/n", "main"),
        ("o-1/n.b_2@v1.0", "o-1/n.b_2", "v1.0"),
        ("o/n@refs/pr/3", "o/n", "refs/pr/3"),
    ],
)
def test_a_hub_id_is_an_owner_a_name_and_perhaps_a_revision(name: str, repo: str, revision: str) -> None:
    hub_id = parse_hub_id(name)
    assert hub_id is not None
    assert (hub_id.repo, hub_id.revision) == (repo, revision)


@pytest.mark.parametrize("name", ["n", "a/b/c", "./n", "../n", "o/n@", "o/n@a@b", "o/n@-x", "/o/n", "o/n m"])
def test_what_is_no_hub_id_is_taken_for_none(name: str) -> None:
    assert parse_hub_id(name) is None


def test_pull_says_what_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'nonsense' is neither 'smollm2-135m' nor a hub id"):
        pull("nonsense", tmp_path)


def test_the_environment_names_the_hub_its_cache_and_the_token(hub: FakeHub, tmp_path: Path) -> None:
    """In a process of its own: the client reads its environment at import."""
    hub.token = "hf_secret"
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("HF_", "EVERYSTEP_"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path / "home")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "EVERYSTEP_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "everystep", "pull", "owner/model"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    snapshot = tmp_path / "home" / "hub" / "models--owner--model" / "snapshots" / COMMIT
    assert done.stdout == f"{snapshot}\n"
    assert done.stderr == "asking the hub for owner/model\ndownloading owner/model\n"
    asked = [ask for ask in hub.asked if hub.repo in ask.path]  # the client asks for more, of its own
    assert len(asked) > 10
    assert {ask.token for ask in asked} == {"Bearer hf_secret"}


# --- what breaks off -----------------------------------------------------------------------------


def shard_of(hub: FakeHub) -> str:
    return min(name for name in hub.files if name.startswith("model-") and name.endswith(".safetensors"))


def test_a_connection_that_ends_within_a_file_is_taken_up_by_a_range(hub: FakeHub, tmp_path: Path) -> None:
    shard, told = shard_of(hub), Told()
    hub.break_off[shard] = [1000, 500]
    snapshot = pull("owner/model", tmp_path, told)
    assert [ask.range for ask in hub.asked_for(shard)] == [None, "bytes=1000-", "bytes=1500-"]
    assert (snapshot / shard).read_bytes() == hub.files[shard]
    assert sum(told.steps) == told.stages[-1][1]


def test_a_download_that_failed_goes_on_where_it_stopped(hub: FakeHub, tmp_path: Path) -> None:
    shard = shard_of(hub)
    hub.break_off[shard] = [1000, 0]
    with pytest.raises(
        ModelError, match=rf"{shard} broke off at 1000 of \d+ bytes; the same command goes on"
    ) as caught:
        pull("owner/model", tmp_path)
    assert "\n" not in caught.value.message
    told, num_asked = Told(), len(hub.asked)
    snapshot = pull("owner/model", tmp_path, told)
    assert [ask.range for ask in hub.asked_for(shard)[2:]] == ["bytes=1000-"]
    assert not any(ask.path.endswith("/tokenizer.json") for ask in hub.asked[num_asked:] if ask.method == "GET")
    assert (snapshot / shard).read_bytes() == hub.files[shard]
    assert sum(told.steps) == told.stages[-1][1]
    assert not list((tmp_path / "hub").rglob("*.incomplete"))


def test_half_a_model_isn_t_taken_for_a_whole_one(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.break_off[shard_of(hub)] = [1000, 0]
    with pytest.raises(ModelError, match="broke off"):
        pull("owner/model", tmp_path)
    go_offline(monkeypatch)
    with pytest.raises(ModelError, match="owner/model isn't in the hub's cache, and HF_HUB_OFFLINE forbids"):
        open_checkpoint("owner/model", tmp_path)


def test_an_interrupt_says_that_the_same_command_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    class Interrupting(Told):
        def advance(self, num_bytes: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(ModelError, match="download of owner/model was interrupted; the same command goes on"):
        pull("owner/model", tmp_path, Interrupting())
    assert (pull("owner/model", tmp_path) / shard_of(hub)).read_bytes() == hub.files[shard_of(hub)]


def test_a_hub_without_ranges_sends_the_file_anew(hub: FakeHub, tmp_path: Path) -> None:
    shard, told = shard_of(hub), Told()
    hub.break_off[shard] = [1000]
    hub.does_ranges = False
    snapshot = pull("owner/model", tmp_path, told)
    assert (snapshot / shard).read_bytes() == hub.files[shard]
    assert sum(told.steps) == told.stages[-1][1]


def test_a_part_that_was_damaged_is_thrown_away(hub: FakeHub, tmp_path: Path) -> None:
    shard = shard_of(hub)
    hub.break_off[shard] = [1000, 0]
    with pytest.raises(ModelError, match="broke off"):
        pull("owner/model", tmp_path)
    (part,) = (tmp_path / "hub").rglob("*.incomplete")
    part.write_bytes(b"x" * 1000)
    with pytest.raises(ModelError, match=rf"{shard} arrived with SHA-256 \w+, expected \w+; it was thrown away"):
        pull("owner/model", tmp_path)
    assert (pull("owner/model", tmp_path) / shard).read_bytes() == hub.files[shard]


def test_a_full_disk_is_said_before_or_when_it_happens(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Told):
        def advance(self, num_bytes: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ModelError, match="download of owner/model failed: the disk is full"):
        pull("owner/model", tmp_path, Full())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"owner/model needs \d+ more bytes in .*, where 1 are free"):
        pull("owner/model", tmp_path)


# --- what is refused -----------------------------------------------------------------------------
REFUSALS: dict[str, tuple[str, Refusal | None, str]] = {
    "another name": ("owner/other", None, "the hub shows no model 'owner/other': the name is wrong, or it is private"),
    "another revision": ("owner/model@v9", None, "the hub has no revision of the name in 'owner/model@v9'"),
    "a private model": ("owner/model", Refusal(401, "RepoNotFound"), "it is private .set HF_TOKEN, or run"),
    "a gated model": ("owner/model", Refusal(403, "GatedRepo"), r"is gated: accept its terms at http.*/owner/model,"),
    "a token that is none": (
        "owner/model",
        Refusal(401, message="Invalid credentials in Authorization header"),
        "doesn't accept the token sent for owner/model: set HF_TOKEN",
    ),
    "a token that may not": ("owner/model", Refusal(403), "the token may not read owner/model"),
    "too many requests": ("owner/model", Refusal(418), r"can't fetch owner/model from the hub: .*418"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_of_the_hub_is_one_line_that_says_what_to_do(what: str, hub: FakeHub, tmp_path: Path) -> None:
    name, refusal, words = REFUSALS[what]
    hub.refusal = refusal
    with pytest.raises(ModelError, match=words) as caught:
        pull(name, tmp_path)
    assert "\n" not in caught.value.message
    assert not (tmp_path / "hub" / "models--owner--model" / "blobs").exists()


def test_a_hub_that_nobody_reaches_is_one_line_with_its_address(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"can't fetch owner/model: the hub \(http://127.0.0.1:9\) can't be reached"):
        pull("owner/model", tmp_path)


WITHOUT: dict[str, tuple[dict[str, bytes], str]] = {
    "pickles only": (
        {"config.json": b"{}", "pytorch_model.bin": b"x"},
        r"owner/model has no model.safetensors and no model.safetensors.index.json, and only these are loaded; "
        r"it has pytorch_model.bin; a revision that has can be named: owner/model@REVISION, such as .* refs/pr/N$",
    ),
    "an adapter": ({"adapter_model.safetensors": b"x"}, "it has adapter_model.safetensors"),
    "another library's weights": ({"consolidated.safetensors": b"x", "params.json": b"{}"}, "it has consolidated"),
    "nothing": ({"README.md": b"x"}, "only these are loaded$"),
    "no tokenizer.json": ({"config.json": b"{}", "model.safetensors": b"x"}, "has no tokenizer.json"),
    "half a tokenizer": (
        {"config.json": b"{}", "model.safetensors": b"x", "vocab.json": b"{}"},
        "owner/model has no tokenizer.json, nor vocab.json and merges.txt to build it from$",
    ),
    "no config": ({"tokenizer.json": b"{}", "model.safetensors": b"x"}, "has no config.json"),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_what_can_t_be_served_is_refused_before_a_byte_is_fetched(what: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.files, words = WITHOUT[what]
    with pytest.raises(ModelError, match=words):
        pull("owner/model", tmp_path)
    assert [ask for ask in hub.asked if "/resolve/" in ask.path] == []


def test_a_shard_that_the_repository_lacks_is_named_before_the_others_come(hub: FakeHub, tmp_path: Path) -> None:
    index = json.loads(hub.files["model.safetensors.index.json"])
    index["weight_map"]["x"] = "model-9.safetensors"
    hub.files["model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(ModelError, match=r"owner/model lacks the shard 'model-9.safetensors' that its index names"):
        pull("owner/model", tmp_path)
    assert hub.asked_for(shard_of(hub)) == []


def test_a_single_file_is_a_model_too(hub: FakeHub, tmp_path: Path) -> None:
    hub.files = dict(DECOYS)
    hub.add_folder(TINY / "llama")
    snapshot: Any = pull("owner/model", tmp_path)
    assert names_in(snapshot) == {path.name for path in (TINY / "llama").iterdir()}
