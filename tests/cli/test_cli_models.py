"""``models`` and ``convert`` as a person meets them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from checkpoint.made_gguf import write_model
from everystep.cli import run
from everystep.cli_models import size_text

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    from huggingface_hub import constants

    for name in [name for name in os.environ if name.startswith("EVERYSTEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EVERYSTEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_model(tmp_path / "mine.gguf").path


def test_an_empty_cache_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    assert capsys.readouterr().out == "0 entries, 0 B in all\n"
    assert run(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": [], "num_bytes": 0}


def test_convert_prints_the_folder_and_says_when_it_was_there(
    gguf: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", str(gguf)]) == 0
    first = capsys.readouterr()
    folder = Path(first.out.strip())
    assert folder.parent == cache / "converted"
    assert (folder / "model.safetensors").is_file()
    assert first.err == f"converting {gguf} to a Hugging Face folder\n"
    assert run(["convert", str(gguf)]) == 0
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, f"{gguf} was converted already\n")


def test_convert_writes_into_a_folder_of_one_s_own(
    gguf: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    assert run(["convert", str(gguf), "--to", "hf", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in out.iterdir()}
    assert not (cache / "converted").exists()
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert run(["convert", str(gguf), "--out", str(out)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"everystep: {out} isn't empty: a converted model goes into a new folder"
    )
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_a_hugging_face_folder_needs_no_conversion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(TINY)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (f"{TINY}\n", f"{TINY} is a Hugging Face folder and needs no conversion\n")
    assert run(["convert", str(TINY), "--out", str(tmp_path / "out")]) == 1
    assert "is a Hugging Face folder already" in capsys.readouterr().err


def test_models_are_listed_in_columns_with_a_total(gguf: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["convert", str(gguf)])
    folder = Path(capsys.readouterr().out.strip())
    (cache / "built" / "left over").mkdir(parents=True)
    assert run(["models"]) == 0
    header, whole, broken, total = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "KIND", "FORM", "SIZE", "LAST", "USED", "WHERE"]
    assert whole.startswith(f"{gguf}  converted  llama  ")
    assert whole.endswith(f"  {folder}")
    assert header.index("WHERE") == whole.index(str(folder))
    assert broken.endswith(f"{cache / 'built' / 'left over'}  (not one of the runner's folders)")
    num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    assert total == f"2 entries, {size_text(num_bytes)} in all"


def test_the_list_as_json_has_what_a_program_needs(gguf: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["convert", str(gguf)])
    capsys.readouterr()
    assert run(["models", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    (model,) = whole["models"]
    assert (model["name"], model["kind"], model["form"]) == (str(gguf), "converted", "llama")
    assert (model["is_usable"], model["problem"], model["suggested_sampling"]) == (True, None, {})
    assert Path(model["path"]).parent == cache / "converted"
    assert model["num_bytes"] == whole["num_bytes"] > 0


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (98_362_432, "98.4 MB"), (10**12, "1.0 TB"), (10**16, "10000.0 TB")],
)
def test_sizes_are_read_at_a_glance(num_bytes: int, words: str) -> None:
    assert size_text(num_bytes) == words


@pytest.mark.parametrize("command", ["models", "convert", "pull"])
def test_the_commands_have_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: everystep {command}")


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["convert", "nowhere.gguf"], 1, "no model 'nowhere.gguf'"),
        (["convert", "x", "--to", "onnx"], 2, "'onnx' is not 'hf'"),
        (["pull", "nonsense"], 1, "'nonsense' is neither 'smollm2-135m' nor a hub id"),
        (["models", "--jsonl"], 2, "No such option '--jsonl'"),
    ],
)
def test_what_goes_wrong_is_one_line(
    args: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == status
    assert words in capsys.readouterr().err.splitlines()[-1]
