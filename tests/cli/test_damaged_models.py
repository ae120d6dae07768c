"""A damaged model at the command line: one line that names the file, exit status 1, and no gigabyte asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint.made_gguf import Recipe, write_model
from everystep.cli import run

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
COMMANDS: dict[str, Callable[[Path, Path], list[str]]] = {
    "serve": lambda model, cache: ["serve", "--model", str(model), "--cache-dir", str(cache), "--port", "0"],
    "generate": lambda model, cache: ["generate", "x", "--model", str(model), "--cache-dir", str(cache)],
    "convert": lambda model, cache: ["convert", str(model), "--cache-dir", str(cache)],
}


def a_cut_gguf(place: Path) -> Path:
    path = write_model(place / "m.gguf").path
    path.write_bytes(path.read_bytes()[:3000])
    return path


def a_gguf_of_no_known_kind(place: Path) -> Path:
    return write_model(place / "m.gguf", Recipe(arch="gemma")).path


def a_folder_without_weights(place: Path) -> Path:
    folder = shutil.copytree(TINY, place / "folder")
    (folder / "model.safetensors").unlink()
    return folder


def a_folder_of_many_layers(place: Path) -> Path:
    folder = shutil.copytree(TINY, place / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    return folder


def nothing(place: Path) -> Path:
    return place / "m.gguf"


MODELS = (a_cut_gguf, a_gguf_of_no_known_kind, a_folder_without_weights, a_folder_of_many_layers, nothing)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_model_ends_every_command_with_one_line_and_status_1(
    command: str, make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make(tmp_path)
    assert run(COMMANDS[command](model, tmp_path / "cache")) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everystep: ")]
    assert len(said) == 1
    assert str(model) in said[0]
    assert "Error" not in said[0]


@pytest.mark.parametrize("command", ["serve", "generate"])
def test_weights_of_the_right_size_that_are_no_numbers_end_a_start(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(TINY, tmp_path / "folder")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4000] + b"\xff" * 4000)  # NaN in any format
    flags = ["--kv-cache-gib", "0.001", "--precision", "f32"]
    assert run([*COMMANDS[command](folder, tmp_path / "cache"), *flags]) == 1
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("everystep: ")]
    words = "the model computes no finite logits: its weights are damaged, or too large for this precision"
    assert said == [f"everystep: {words}"]


TOKENIZERS = {
    "tokenizer.json": ("tokenizer.json", '{"model": {"type": "BPE"}}', "the tokenizer can't be built"),
    "chat template": ("chat_template.jinja", "{% for m in messages %}", "chat template can't be compiled"),
}


@pytest.mark.parametrize("what", TOKENIZERS)
def test_a_damaged_tokenizer_or_template_ends_a_server_s_start(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, text, words = TOKENIZERS[what]
    folder = shutil.copytree(TINY, tmp_path / "folder")
    (folder / name).write_text(text)
    assert run([*COMMANDS["serve"](folder, tmp_path / "cache"), "--runner", "fake", "--kv-cache-gib", "0.001"]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everystep: ")]
    assert len(said) == 1
    assert words in said[0]
    assert str(folder) in said[0]


def test_absurd_sizes_are_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    """In a process that may have a gigabyte: a reader that believed them would end in a MemoryError."""
    whole = write_model(tmp_path / "whole.gguf").path.read_bytes()
    models = [a_folder_of_many_layers(tmp_path)]
    for place in (8, 16, 24):  # tensors, keys, the first key's characters
        for value in (10**8, 2**40, 2**62, 2**64 - 1):
            models.append(tmp_path / f"{place}-{value}.gguf")
            models[-1].write_bytes(whole[:place] + value.to_bytes(8, "little") + whole[place + 8 :])
    for value in (10**7, 10**8, 2**40, 2**63):
        folder = shutil.copytree(TINY, tmp_path / str(value))
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(value.to_bytes(8, "little") + data[8:])
        models.append(folder)
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "from everystep.cli import run\n"
        "for model in sys.argv[2:]: print(run(['convert', model, '--cache-dir', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cache"), *map(str, models)],
        env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"] * len(models)
    lines = done.stderr.splitlines()
    assert len(lines) == len(models)
    assert all(str(model) in line for model, line in zip(models, lines, strict=True))
    assert "MemoryError" not in done.stderr
