"""Weights live against transformers: each family's folder, and GGUF files of each architecture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checkpoint.made_gguf import HEAD_DIM, Kind, Recipe, write_model
from everystep.architecture import Checkpoint
from everystep.checkpoint import default_cache_dir, open_checkpoint, pull

pytestmark = pytest.mark.torch

TINY = Path(__file__).parents[1] / "golden" / "tiny"


def assert_same_weights(checkpoint: Checkpoint, model: object) -> None:
    state = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}  # type: ignore[attr-defined]
    names = set(checkpoint.weights.names())
    assert names
    assert names <= set(state)
    for name in names:
        theirs = state[name].T if state_is_conv1d(checkpoint, name) else state[name]
        np.testing.assert_array_equal(checkpoint.weights.load(name), theirs, err_msg=name)


def state_is_conv1d(checkpoint: Checkpoint, name: str) -> bool:
    return checkpoint.architecture.family == "gpt2" and (".attn.c_" in name or ".mlp.c_" in name)


@pytest.mark.parametrize("name", sorted(path.name for path in TINY.iterdir()))
def test_a_folder_s_weights_are_transformers_weights(name: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(TINY / name, dtype="float32")
    assert_same_weights(open_checkpoint(str(TINY / name), tmp_path), model)


@pytest.mark.parametrize("arch", ["llama", "qwen2"])  # of Qwen3's files transformers doesn't read the head's size
def test_a_gguf_file_s_weights_are_transformers_weights(arch: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    metadata = {"attention.key_length": HEAD_DIM, "rope.freq_base": 10000.0}
    made = write_model(
        tmp_path / "m.gguf", Recipe(arch=arch, kind=Kind.Q4_1, has_bias=arch == "qwen2", metadata=metadata)
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=made.path.name, dtype="float32")
    assert_same_weights(open_checkpoint(str(made.path), tmp_path), model)


@pytest.mark.slow
def test_the_default_model_s_weights_are_transformers_weights() -> None:
    from transformers import AutoModelForCausalLM

    path = pull("smollm2-135m", default_cache_dir())
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype="float32")
    assert_same_weights(open_checkpoint(str(path), default_cache_dir()), model)
