"""What a model suggests to sample with: only that, and only what can be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from checkpoint.made_gguf import write_model
from everystep.checkpoint import open_checkpoint, suggested_sampling

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama"


@pytest.mark.parametrize(
    ("config", "suggested"),
    [
        ({}, {}),
        ({"eos_token_id": [1, 2], "max_length": 20, "cache_implementation": "static"}, {}),
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1},
            {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1},
        ),
        ({"temperature": 1, "min_p": 0}, {"temperature": 1.0, "min_p": 0.0}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": "0.6", "top_p": None, "top_k": 2.5, "min_p": True, "repetition_penalty": [1]}, {}),
        ({"temperature": float("nan"), "top_p": float("inf"), "top_k": True}, {}),
    ],
)
def test_sampling_keys_of_the_right_type_are_suggestions(
    config: dict[str, Any], suggested: dict[str, float], tmp_path: Path
) -> None:
    folder = shutil.copytree(TINY, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(config))
    found = suggested_sampling(open_checkpoint(str(folder), tmp_path))
    assert found == suggested
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in suggested.items()
    }


def test_a_gguf_file_suggests_nothing(tmp_path: Path) -> None:
    assert suggested_sampling(open_checkpoint(str(write_model(tmp_path / "m.gguf").path), tmp_path)) == {}
