"""The model of opt-125m's shape: as many parameters as the real one, and a folder that our own reader takes."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

from everystep.checkpoint import open_checkpoint

MAKER = Path(__file__).parents[2] / "benchmarks" / "models" / "opt_125m_shape.py"
OPT_125M_PARAMETERS = 125_239_296  # as transformers counts facebook/opt-125m


@pytest.fixture
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("opt_125m_shape", MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_has_as_many_parameters_as_opt_125m(maker: ModuleType) -> None:
    assert sum(math.prod(shape) for _, shape in maker.shapes()) == OPT_125M_PARAMETERS


def test_a_token_for_each_row_of_the_embedding_and_each_merge_makes_one(maker: ModuleType) -> None:
    model = maker.tokenizer()["model"]
    assert sorted(model["vocab"].values()) == list(range(50_272))
    assert all(first + second in model["vocab"] for first, second in model["merges"])


def test_our_reader_takes_the_folder_and_the_same_seed_makes_the_same_bytes(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"HIDDEN": 16, "LAYERS": 2, "HEADS": 2, "FFN": 32, "VOCAB": 300, "POSITIONS": 64}
    for name, value in small.items():
        monkeypatch.setattr(maker, name, value)
    sizes = {"hidden_size": 16, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
             "ffn_dim": 32, "vocab_size": 300, "max_position_embeddings": 64}  # fmt: skip
    monkeypatch.setattr(maker, "CONFIG", {**maker.CONFIG, **sizes})
    folders = [tmp_path / "a", tmp_path / "b"]
    assert [maker.make(folder, 5) for folder in folders] == [True, True]
    assert maker.make(folders[0], 5) is False, "it is there already"
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second
    assert maker.make(folders[1], 6) is True
    assert (folders[1] / "model.safetensors").read_bytes() != first
    checkpoint = open_checkpoint(str(folders[0]), tmp_path)
    assert checkpoint.architecture.family == "opt"
    assert checkpoint.architecture.max_context_len == 64
    assert checkpoint.weights is not None
