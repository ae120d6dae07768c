"""A GGUF file becomes a folder once, whole or not at all, and our own reader finds the same model in it."""

from __future__ import annotations

import dataclasses
import errno
import json
import threading
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoint.made_gguf import HEAD_DIM, Kind, Recipe, write_model
from everystep.architecture import Architecture, Checkpoint, RopeScaling, TokenizerData
from everystep.checkpoint import converted, hf_folder, open_checkpoint
from everystep.checkpoint.hf_config_files import config_json
from everystep.errors import ModelError, UnsupportedModel

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama"
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
RECIPES = {
    "llama": Recipe(kind=Kind.Q4_1),
    "llama with a tied head": Recipe(left_out=("output.weight",)),
    "llama with linear scaling": Recipe(metadata=LINEAR),
    "mistral": Recipe(metadata={"attention.sliding_window": 32}),
    "qwen2": Recipe(arch="qwen2", has_bias=True, metadata={"rope.freq_base": 1e6}),
    "qwen2 with a window": Recipe(arch="qwen2", has_bias=True, metadata={"attention.sliding_window": 32}),
    "qwen3": Recipe(arch="qwen3", metadata={"attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM}),
}


class Told:
    """Remembers what a progress bar would show."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.num_bytes = 0

    def stage(self, words: str, total: int | None) -> None:
        self.stages.append((words, total))

    def advance(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes


def opened(tmp_path: Path, recipe: Recipe | None = None) -> Checkpoint:
    return open_checkpoint(str(write_model(tmp_path / "m.gguf", recipe).path), tmp_path / "cache")


def read_json(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return values


def in_cache(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "converted").iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("name", RECIPES)
def test_our_own_reader_finds_the_same_model_in_the_folder(name: str, tmp_path: Path) -> None:
    file = opened(tmp_path, RECIPES[name])
    folder = open_checkpoint(str(hf_folder(file, tmp_path / "cache")), tmp_path / "cache")
    family = "mistral" if name == "mistral" else file.architecture.family
    assert folder.architecture == Architecture(**{**fields_of(file.architecture), "family": family})
    flags = {"add_bos": None, "add_eos": None}  # in a folder the post-processor says it
    assert folder.tokenizer == dataclasses.replace(file.tokenizer, **flags)
    assert set(folder.weights.names()) == set(file.weights.names())
    for array_name in file.weights.names():
        np.testing.assert_array_equal(folder.weights.load(array_name), file.weights.load(array_name))


def fields_of(architecture: Architecture) -> dict[str, Any]:
    return {name: getattr(architecture, name) for name in Architecture.__slots__}


def test_the_safetensors_library_reads_what_went_into_the_gguf_file(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", Recipe(kind=Kind.F32))
    folder = hf_folder(open_checkpoint(str(made.path), tmp_path / "cache"), tmp_path / "cache")
    arrays = load_file(folder / "model.safetensors")
    assert set(arrays) == set(made.arrays)
    for name, values in made.arrays.items():
        assert arrays[name].dtype == np.float32
        np.testing.assert_array_equal(arrays[name], values)


def test_the_second_time_nothing_is_written_and_progress_hears_nothing(tmp_path: Path) -> None:
    checkpoint, told = opened(tmp_path), Told()
    folder = hf_folder(checkpoint, tmp_path / "cache", told)
    ((words, total),) = told.stages
    assert (words, total) == (f"converting {checkpoint.name} to a Hugging Face folder", told.num_bytes)
    assert total == sum(array.nbytes for array in load_file(folder / "model.safetensors").values())
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = Told()
    assert hf_folder(checkpoint, tmp_path / "cache", again) == folder
    assert again.stages == []
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_folder_is_its_own_conversion(tmp_path: Path) -> None:
    assert hf_folder(open_checkpoint(str(TINY), tmp_path), tmp_path) == TINY
    assert not (tmp_path / "converted").exists()


def test_another_tokenizer_or_a_newer_converter_makes_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hf_folder(opened(tmp_path), tmp_path / "cache")
    data = (tmp_path / "m.gguf").read_bytes()
    assert data.count(b"t63") == 1
    (tmp_path / "m.gguf").write_bytes(data.replace(b"t63", b"xyz"))
    checkpoint = open_checkpoint(str(tmp_path / "m.gguf"), tmp_path / "cache")
    second = hf_folder(checkpoint, tmp_path / "cache")
    assert "xyz" in (second / "tokenizer.json").read_text("utf-8")
    monkeypatch.setattr(converted, "CONVERTER_VERSION", 99)
    third = hf_folder(checkpoint, tmp_path / "cache")
    assert len({first, second, third}) == 3
    assert in_cache(tmp_path) == sorted([first.name, third.name])  # the older one of the same file is gone


@pytest.mark.parametrize("what", ["cut weights", "no config", "another number", "another token", "no record"])
def test_a_damaged_folder_is_made_anew(what: str, tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    folder = hf_folder(checkpoint, tmp_path / "cache")
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    if what == "no config":
        (folder / "config.json").unlink()
    elif what == "another number":
        (folder / "model.safetensors").write_bytes(whole["model.safetensors"][:-1] + b"\x7f")
    elif what == "another token":
        (folder / "tokenizer.json").write_bytes(whole["tokenizer.json"].replace(b"t63", b"xyz"))
    elif what == "no record":
        (folder / "everystep.json").write_text("{}")
    else:
        (folder / "model.safetensors").write_bytes(whole["model.safetensors"][:-1])
    assert hf_folder(checkpoint, tmp_path / "cache") == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(converted, "write_float32", fail)
    with pytest.raises(ModelError, match=r"can't convert .*m\.gguf into .*: No space left on device") as caught:
        hf_folder(opened(tmp_path), tmp_path / "cache")
    assert "\n" not in caught.value.message
    assert in_cache(tmp_path) == []


def test_what_an_interrupted_conversion_left_is_cleared_away(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path)
    folder = converted.converted_folder(checkpoint, tmp_path / "cache")
    left = folder.with_name(f".{folder.name}.part")
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    hf_folder(checkpoint, tmp_path / "cache")
    assert in_cache(tmp_path) == [folder.name]


def test_of_two_at_once_one_converts_and_the_other_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks of one file opened twice exclude each other within a process as between two."""
    checkpoint = opened(tmp_path)
    waits, done = threading.Event(), []
    real_write = converted.write_float32

    class Waiting(Told):
        def stage(self, words: str, total: int | None) -> None:
            super().stage(words, total)
            waits.set()

    second = Waiting()
    other = threading.Thread(target=lambda: done.append(hf_folder(checkpoint, tmp_path / "cache", second)))

    def write_while_the_other_comes(*args: Any) -> None:
        other.start()
        assert waits.wait(20)
        real_write(*args)

    monkeypatch.setattr(converted, "write_float32", write_while_the_other_comes)
    first = hf_folder(checkpoint, tmp_path / "cache")
    other.join(20)
    assert done == [first]
    assert second.stages == [("waiting for another process that converts the same model", None)]


def test_several_ends_of_text_reach_both_configs(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_model(path)
    tokenizer = TokenizerData(tokenizer_json="{}", bos_token_id=1, eos_token_ids=(2, 7))
    architecture = open_checkpoint(str(path), tmp_path / "cache").architecture
    assert config_json(architecture, tokenizer)["eos_token_id"] == [2, 7]
    assert read_json(hf_folder(opened(tmp_path), tmp_path / "cache") / "generation_config.json") == {
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def test_a_window_with_biases_has_no_class_and_is_refused(tmp_path: Path) -> None:
    values = fields_of(opened(tmp_path).architecture)
    odd = Architecture(**{**values, "sliding_window": 8, "has_attention_bias": True})
    with pytest.raises(UnsupportedModel, match="sliding window and biases"):
        config_json(odd, TokenizerData(tokenizer_json="{}"))


def test_llama_3_s_scaling_keeps_all_its_constants(tmp_path: Path) -> None:
    values = fields_of(opened(tmp_path).architecture)
    scaling = RopeScaling(kind="llama3", factor=8.0)
    rope = config_json(Architecture(**{**values, "rope_scaling": scaling}), TokenizerData(tokenizer_json="{}"))
    assert rope["rope_parameters"] == {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


# --- against transformers ------------------------------------------------------------------------
TRICKY = [
    "Hello, I am",
    "  two  spaces\n\n\tand\ttabs ",
    "1234567890 3.14159 1,000,000",
    "안녕하세요 세계 🙂👩‍👩‍👧 naïve café",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "def f(x):\n    return x  # ünïcode",
    "",
]


@pytest.fixture(scope="module")
def default_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Path]:
    from everystep.checkpoint import default_cache_dir

    checkpoint = open_checkpoint("smollm2-135m", default_cache_dir())
    return checkpoint, hf_folder(checkpoint, tmp_path_factory.mktemp("cache"))


@pytest.mark.torch
def test_transformers_gets_the_logits_that_it_gets_from_the_gguf_file(default_model: tuple[Checkpoint, Path]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    checkpoint, folder = default_model
    file = Path(checkpoint.path)
    ids = torch.tensor([[1, 9690, 198, 2683, 359, 253, 5356, 5646, 28, 339, 744, 216, 33, 34, 35]])
    with torch.no_grad():
        ours = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
        theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)(ids).logits
    assert ours.dtype == torch.float32
    assert float((ours - theirs).abs().max()) < 1e-5
    assert float(theirs.abs().max()) > 1


@pytest.mark.torch
def test_transformers_tokenizer_of_the_folder_gives_our_ids(default_model: tuple[Checkpoint, Path]) -> None:
    from transformers import AutoTokenizer

    from everystep.text import Tokenizer

    checkpoint, folder = default_model
    ours, theirs = Tokenizer(checkpoint.tokenizer), AutoTokenizer.from_pretrained(folder)
    for text in TRICKY:
        assert ours.encode_prompt(text) == theirs(text).input_ids, text
    chat = [{"role": "user", "content": "What is 12 + 30? 안녕 🙂"}]
    assert ours.encode_chat(chat) == theirs.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert (theirs.bos_token_id, theirs.eos_token_id) == (1, 2)


@pytest.mark.torch
@pytest.mark.parametrize("name", RECIPES)
def test_transformers_opens_each_family_without_a_weight_missing_or_left_over(name: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    checkpoint = opened(tmp_path, RECIPES[name])
    folder = hf_folder(checkpoint, tmp_path / "cache")
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    a, config = checkpoint.architecture, model.config
    assert config.rope_parameters["rope_theta"] == a.rope_theta
    assert config.rope_parameters.get("factor") == (a.rope_scaling.factor if a.rope_scaling else None)
    assert getattr(config, "sliding_window", None) == a.sliding_window
    if a.sliding_window and config.model_type == "qwen2":
        assert set(config.layer_types) == {"sliding_attention"}
    assert (config.bos_token_id, config.eos_token_id) == (1, 2)


@pytest.mark.torch
@pytest.mark.parametrize("add_bos", [True, False])
def test_transformers_tokenizer_puts_begin_of_text_where_the_file_says(add_bos: bool, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = write_model(tmp_path / "m.gguf").path
    with_flag(path, add_bos)
    folder = hf_folder(open_checkpoint(str(path), tmp_path / "cache"), tmp_path / "cache")
    assert AutoTokenizer.from_pretrained(folder)("").input_ids == [1] * add_bos


def with_flag(path: Path, add_bos: bool) -> None:
    """The made file says nothing of BOS; write it anew with a flag, its tensors as they are."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_suffix(".new"), "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)
    writer.add_add_bos_token(add_bos)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".new").rename(path)
