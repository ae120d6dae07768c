"""Converted weights on disk: made once, whole or not at all, and read back to the bit."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from everystep.architecture import Architecture, Checkpoint, Outline, TokenizerData
from everystep.runner.built_weights import BuiltWeights, built_weights
from everystep.runner.precision import Precision, resolve_precision

ARCHITECTURE = Architecture(
    family="llama",
    num_layers=1,
    hidden_size=32,
    num_heads=1,
    num_kv_heads=1,
    head_dim=32,
    intermediate_size=32,
    vocab_size=8,
    max_context_len=64,
    norm_eps=1e-5,
)
EMBEDDING, LINEAR, NORM = "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight"


class CountingWeights:
    """Arrays in memory; counts how often each is read, and may fail at one."""

    def __init__(self, fail_at: str | None = None) -> None:
        rng = np.random.default_rng(0)
        self.arrays = {name: rng.normal(size=(8, 32)).astype(np.float32) for name in (EMBEDDING, LINEAR)}
        self.arrays[NORM] = rng.normal(size=32).astype(np.float32)
        self.num_loads = 0
        self.fail_at = fail_at

    def names(self) -> Iterable[str]:
        return self.arrays

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def load(self, name: str) -> npt.NDArray[np.float32]:
        self.num_loads += 1
        if name == self.fail_at:
            raise OSError(28, "No space left on device")
        return self.arrays[name].copy()


def checkpoint(weights: CountingWeights, content_key: str = "a" * 64) -> Checkpoint:
    return Checkpoint(
        name="m",
        path="/m",
        content_key=content_key,
        outline=Outline(
            model_type=ARCHITECTURE.family,
            vocab_size=ARCHITECTURE.vocab_size,
            max_context_len=ARCHITECTURE.max_context_len,
        ),
        read_architecture=lambda: ARCHITECTURE,
        read_weights=lambda: weights,
        read_tokenizer=lambda: TokenizerData(tokenizer_json="{}"),
    )


def precision(name: str) -> Precision:
    return resolve_precision(name, deterministic=True, cpu=frozenset())


def build(
    weights: CountingWeights, cache_dir: Path, name: str = "f32", library: str = "v1", key: str = "a"
) -> BuiltWeights:
    return built_weights(checkpoint(weights, key * 64), precision(name), cache_dir, library)


def test_f32_comes_back_to_the_bit_and_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    weights = CountingWeights()
    built = build(weights, tmp_path)
    for name, array in weights.arrays.items():
        assert np.array_equal(built.get(f"{name}:f32"), array)
    assert np.array_equal(built.get("lm_head.weight:f32"), weights.arrays[EMBEDDING])


def test_int8_rounds_linear_weights_and_leaves_norms(tmp_path: Path) -> None:
    weights = CountingWeights()
    built = build(weights, tmp_path, "int8")
    restored = built.get(f"{LINEAR}:int8") * built.get(f"{LINEAR}:int8.scales")
    np.testing.assert_allclose(restored, weights.arrays[LINEAR], atol=np.abs(weights.arrays[LINEAR]).max() / 250)
    assert np.array_equal(built.get(f"{NORM}:f32"), weights.arrays[NORM])
    assert f"{LINEAR}:f32" not in built


def test_a_second_start_reads_nothing_of_the_model(tmp_path: Path) -> None:
    build(CountingWeights(), tmp_path)
    weights = CountingWeights()
    build(weights, tmp_path)
    assert weights.num_loads == 0


@pytest.mark.parametrize("change", [{"name": "int8"}, {"library": "v2"}, {"key": "b"}])
def test_another_format_library_or_model_is_built_anew(tmp_path: Path, change: dict[str, str]) -> None:
    build(CountingWeights(), tmp_path)
    weights = CountingWeights()
    build(weights, tmp_path, **change)
    assert weights.num_loads == 3


def test_what_an_older_library_built_makes_room_and_stays_readable_where_it_is_in_use(tmp_path: Path) -> None:
    weights = CountingWeights()
    old = build(weights, tmp_path, library="v1")
    build(weights, tmp_path, "int8", library="v1")
    build(weights, tmp_path, library="v2")
    names = sorted(path.name.split("-", 1)[1] for path in (tmp_path / "built").iterdir())
    assert [name.rsplit("-", 1)[0] for name in names] == ["f32-f32-v2", "int8-f16-v1"]
    assert np.array_equal(old.get(f"{LINEAR}:f32"), weights.arrays[LINEAR])


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        build(CountingWeights(fail_at=LINEAR), tmp_path)
    assert [path for path in (tmp_path / "built").iterdir() if path.name != "."] == []
    assert build(CountingWeights(), tmp_path).get(f"{NORM}:f32").shape == (32,)


KILLED_WITHIN = """
import os, signal, sys
from pathlib import Path
from everystep.runner import built_weights
from everystep.runner.precision import resolve_precision

class Killing:
    def names(self):
        os.kill(os.getpid(), signal.SIGKILL)

class Checkpoint:
    content_key, weights = "a" * 64, Killing()

precision = resolve_precision("f32", deterministic=False, cpu=frozenset())
built_weights.built_weights(Checkpoint(), precision, Path(sys.argv[1]), "lib")
"""


def test_what_a_process_left_that_was_killed_within_goes_with_the_next_conversion(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WITHIN, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (abandoned,) = (tmp_path / "built").glob(".building-*")
    at_work = Path(tempfile.mkdtemp(dir=tmp_path / "built", prefix=".building-"))
    holder = os.open(at_work, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)  # as another process that converts now
    build(CountingWeights(), tmp_path)
    assert not abandoned.exists()
    assert at_work.exists()
    os.close(holder)


def test_a_folder_that_another_process_made_meanwhile_is_taken(tmp_path: Path) -> None:
    class Rival(CountingWeights):
        def load(self, name: str) -> npt.NDArray[np.float32]:
            if self.num_loads == 0:
                build(CountingWeights(), tmp_path)
            return super().load(name)

    rival = Rival()
    built = build(rival, tmp_path)
    assert rival.num_loads == 3
    assert np.array_equal(built.get(f"{NORM}:f32"), rival.arrays[NORM])
    assert len(list((tmp_path / "built").iterdir())) == 1


@pytest.mark.parametrize("damage", ["cut", "index"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    build(CountingWeights(), tmp_path)
    (folder,) = (tmp_path / "built").iterdir()
    if damage == "cut":
        data = (folder / "arrays.bin").read_bytes()
        (folder / "arrays.bin").write_bytes(data[:-100])
    else:
        (folder / "index.json").write_text("{")
    weights = CountingWeights()
    built = build(weights, tmp_path)
    assert weights.num_loads == 3
    assert np.array_equal(built.get(f"{NORM}:f32"), weights.arrays[NORM])


def test_dropped_pages_come_back_from_the_file(tmp_path: Path) -> None:
    weights = CountingWeights()
    built = build(weights, tmp_path)
    array = built.get(f"{LINEAR}:f32")
    built.release_pages()
    assert np.array_equal(array, weights.arrays[LINEAR])


def test_the_model_itself_is_not_among_what_is_written(tmp_path: Path) -> None:
    build(CountingWeights(), tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"arrays.bin", "index.json"}
    index = next(tmp_path.rglob("index.json"))
    assert json.loads(index.read_text())
    assert replace(checkpoint(CountingWeights()), name="x").content_key == "a" * 64


def cut_arrays(folder: Path) -> None:
    data = (folder / "arrays.bin").read_bytes()
    (folder / "arrays.bin").write_bytes(data[:-1])


def change_a_number(folder: Path) -> None:
    data = (folder / "arrays.bin").read_bytes()
    (folder / "arrays.bin").write_bytes(data[:100] + bytes([data[100] ^ 0x40]) + data[101:])


def change_a_place(folder: Path) -> None:
    text = (folder / "index.json").read_text()
    (folder / "index.json").write_text(text.replace('"offset": 0', '"offset": 64'))


def garble(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def put_a_file_in_its_place(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("x")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "arrays cut": cut_arrays,
    "arrays empty": garble("arrays.bin", b""),
    "arrays gone": lambda folder: (folder / "arrays.bin").unlink(),
    "one number changed": change_a_number,
    "one place changed": change_a_place,
    "index empty": garble("index.json", b""),
    "index a list": garble("index.json", b"[]"),
    "index without end": garble("index.json", b"[" * 100_000),
    "index no UTF-8": garble("index.json", b"\xff"),
    "index of another layout": garble("index.json", b'{"num_bytes": 0, "arrays": {}}'),
    "index gone": lambda folder: (folder / "index.json").unlink(),
    "a file in the folder's place": put_a_file_in_its_place,
}


@pytest.mark.parametrize("what", DAMAGE)
def test_whatever_is_damaged_is_noticed_and_made_anew(what: str, tmp_path: Path) -> None:
    build(CountingWeights(), tmp_path)
    (folder,) = (tmp_path / "built").glob("[!.]*")
    DAMAGE[what](folder)
    weights = CountingWeights()
    built = build(weights, tmp_path)
    assert weights.num_loads == 3
    for name, array in weights.arrays.items():
        assert np.array_equal(built.get(f"{name}:f32"), array)


def test_a_copied_cache_is_checked_once_and_taken(tmp_path: Path) -> None:
    build(CountingWeights(), tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    weights = CountingWeights()
    build(weights, tmp_path / "second")
    (folder,) = (tmp_path / "second" / "built").glob("[!.]*")
    index = json.loads((folder / "index.json").read_text())
    assert weights.num_loads == 0
    assert index["facts"][2] == (folder / "arrays.bin").stat().st_ino
