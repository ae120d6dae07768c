"""Model files are data: no pickle is loaded, wherever one lies and whatever its name, and no code of a model runs."""

from __future__ import annotations

import ast
import functools
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from everystep.checkpoint import open_checkpoint
from everystep.errors import ModelError
from everystep.text import Tokenizer

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
SOURCES = ROOT / "src"
WEIGHTS = "model.safetensors"
LOADERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
PICKLE_NAMES = ("pytorch_model.bin", "model.pt", "model.pth", "training_args.bin", "optimizer.pt", "scheduler.pt",
                "consolidated.00.pth", "adapter_model.bin", "model.pkl", "model.ckpt")  # fmt: skip


class Trap:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, sprung: Path) -> None:
        self._sprung = sprung

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._sprung,)


def trap(tmp_path: Path) -> bytes:
    return pickle.dumps(Trap(tmp_path / "sprung"))


def zipped(data: bytes, path: Path) -> None:
    """As torch.save writes it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(TINY, tmp_path / "llama")


def use(folder: Path, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(folder), tmp_path / "cache")
    Tokenizer(checkpoint.tokenizer)
    for name in checkpoint.weights.names():
        checkpoint.weights.load(name)


def test_the_trap_springs_where_it_is_loaded(tmp_path: Path) -> None:
    """So that the silence below means something."""
    pickle.loads(trap(tmp_path))
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
@pytest.mark.parametrize("is_zipped", [False, True])
def test_a_folder_of_pickles_only_is_refused_in_a_line_that_says_so(
    name: str, is_zipped: bool, folder: Path, tmp_path: Path
) -> None:
    (folder / WEIGHTS).unlink()
    if is_zipped:
        zipped(trap(tmp_path), folder / name)
    else:
        (folder / name).write_bytes(trap(tmp_path))
    with pytest.raises(ModelError, match="it holds pickles, which are never loaded: convert them to safetensors"):
        use(folder, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_pickles_beside_safetensors_are_passed_over(folder: Path, tmp_path: Path) -> None:
    for name in PICKLE_NAMES:
        (folder / name).write_bytes(trap(tmp_path))
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "pytorch_model.bin"}}))
    use(folder, tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "tokenizer.json", "tokenizer_config.json",
                                  "generation_config.json", "special_tokens_map.json"])  # fmt: skip
@pytest.mark.parametrize("is_zipped", [False, True])
def test_a_pickle_by_the_name_of_data_is_no_data(name: str, is_zipped: bool, folder: Path, tmp_path: Path) -> None:
    if is_zipped:
        zipped(trap(tmp_path), folder / name)
    else:
        (folder / name).write_bytes(trap(tmp_path))
    with pytest.raises(ModelError) as caught:
        use(folder, tmp_path)
    assert str(folder) in caught.value.message
    assert not (tmp_path / "sprung").exists()


def test_an_index_that_names_a_pickle_gets_no_pickle_loaded(folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(trap(tmp_path))
    index = {"weight_map": {"model.norm.weight": "pytorch_model.bin"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"pytorch_model.bin is corrupt or no safetensors file"):
        use(folder, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_by_the_name_of_gguf_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(trap(tmp_path))
    with pytest.raises(ModelError, match="is no GGUF file"):
        open_checkpoint(str(tmp_path / "m.gguf"), tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_the_code_of_a_model_is_not_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    maps = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model", "AutoTokenizer": "modeling.T"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": maps}))
    for name in ("modeling.py", "__init__.py", "conftest.py", "sitecustomize.py"):
        (folder / name).write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'sprung')!r}).touch()\n")
    use(folder, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_serving_a_trapped_folder_end_to_end_springs_nothing(folder: Path, tmp_path: Path) -> None:
    """With the runner that is served by default, its cache too."""
    for name in PICKLE_NAMES:
        (folder / name).write_bytes(trap(tmp_path))
    script = "import sys; from everystep.cli import run; sys.exit(run(sys.argv[1:]))"
    flags = [
        "--model",
        str(folder),
        "--cache-dir",
        str(tmp_path / "cache"),
        "--runner",
        "openvino",
        "--max-tokens",
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, "generate", "Hello", *flags, "--kv-cache-gib", "0.001"],
        env={"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "sprung").exists()


# --- the sources ---------------------------------------------------------------------------------
@functools.cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCES.rglob("*.py"))}


def complaints(tree: ast.Module) -> list[str]:
    """What would load a pickle, or run a model's code."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in LOADERS]
            case ast.ImportFrom(module=module) if module and module.split(".")[0] in LOADERS:
                found.append(module)
            case ast.Call(func=ast.Attribute(attr="load", value=ast.Name(id="torch" | "joblib"))):
                found.append("torch.load")
            case ast.Call(func=ast.Attribute(attr="load" | "fromfile", value=ast.Name(id="np" | "numpy"))):
                found += ["allow_pickle" for word in node.keywords if word.arg == "allow_pickle"]
            case ast.keyword(arg="trust_remote_code", value=value):
                is_off = isinstance(value, ast.Constant) and value.value is False
                found += [] if is_off else ["trust_remote_code"]
            case ast.keyword(arg="use_safetensors", value=value):
                is_on = isinstance(value, ast.Constant) and value.value is True
                found += [] if is_on else ["use_safetensors"]
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                found.append(name)
    return found


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "import torch\ntorch.load(f)", "np.load(f, allow_pickle=True)",
     "f(trust_remote_code=True)", "f(trust_remote_code=x)", "f(use_safetensors=None)", "eval('1')", "import joblib"],
)  # fmt: skip
def test_the_search_finds_what_would_load_a_pickle(source: str) -> None:
    assert complaints(ast.parse(source))


def test_no_module_loads_a_pickle_or_runs_a_model_s_code() -> None:
    assert len(modules()) > 100
    assert {path: words for path, tree in modules().items() if (words := complaints(tree))} == {}


def test_every_model_that_transformers_loads_is_of_safetensors() -> None:
    """Its own default takes pickles where there is nothing else."""
    calls = [
        (path, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "from_pretrained"
        and "Config" not in ast.unparse(node.func.value)
    ]
    assert calls
    for path, call in calls:
        assert "use_safetensors" in {word.arg for word in call.keywords}, path
