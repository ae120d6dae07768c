"""Hugging Face folders: each family's tiny model, and folders that aren't whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everystep.architecture import RopeScaling
from everystep.checkpoint import open_checkpoint
from everystep.errors import ModelError, UnsupportedModel

TINY = Path(__file__).parents[1] / "golden" / "tiny"
FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "opt", "gpt2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny Llama, to be damaged."""
    return shutil.copytree(TINY / "llama", tmp_path / "llama")


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file; ``...`` removes one."""
    content = json.loads(path.read_text("utf-8")) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf-8")


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_opens_and_every_array_is_finite_and_of_its_shape(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(TINY / name), tmp_path)
    a = checkpoint.architecture
    assert a.family == {"llama3": "llama"}.get(name, name)
    assert (a.num_layers, a.hidden_size, a.vocab_size, a.head_dim) == (2, 64, 384, 32)
    arrays = {array_name: checkpoint.weights.load(array_name) for array_name in checkpoint.weights.names()}
    assert all(np.isfinite(array).all() and array.std() > 0.1 for array in arrays.values())
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert ("lm_head.weight" in arrays) is not a.is_head_tied


def test_the_tiny_models_differ_where_they_should(tmp_path: Path) -> None:
    found = {name: open_checkpoint(str(TINY / name), tmp_path).architecture for name in FAMILIES}
    assert {name for name, a in found.items() if a.sliding_window} == {"mistral"}
    assert found["mistral"].sliding_window == 16
    assert {name for name, a in found.items() if a.has_attention_bias} == {"qwen2", "opt", "gpt2"}
    assert found["llama3"].rope_scaling == RopeScaling(
        kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=64
    )
    assert (found["opt"].activation, found["gpt2"].activation, found["qwen3"].activation) == (
        "relu",
        "gelu_tanh",
        "silu",
    )
    assert {name for name, a in found.items() if a.num_kv_heads < a.num_heads} == set(FAMILIES) - {"opt", "gpt2"}


def test_gpt2_s_linear_weights_are_turned_to_out_by_in(tmp_path: Path) -> None:
    weights = open_checkpoint(str(TINY / "gpt2"), tmp_path).weights
    assert weights.load("transformer.h.0.attn.c_attn.weight").shape == (192, 64)
    assert weights.load("transformer.h.0.mlp.c_proj.weight").shape == (64, 256)
    stored = safetensors_arrays(TINY / "gpt2" / "model.safetensors")["transformer.h.1.mlp.c_fc.weight"]
    assert stored.shape == (64, 256)
    np.testing.assert_array_equal(weights.load("transformer.h.1.mlp.c_fc.weight"), stored.T)


def safetensors_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read plainly; float16 only."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], np.float16).reshape(entry["shape"]).astype(np.float32)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    files = sorted((TINY / "qwen3").glob("model-*.safetensors"))
    assert len(files) > 1
    stored: dict[str, Any] = {}
    for path in files:
        stored |= safetensors_arrays(path)
    weights = open_checkpoint(str(TINY / "qwen3"), tmp_path).weights
    assert set(weights.names()) == set(stored)
    for name, array in stored.items():
        np.testing.assert_array_equal(weights.load(name), array)


def write_safetensors(path: Path, arrays: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, offset = {}, 0
    for name, (dtype, shape, data) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    body = b"".join(data for _, _, data in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def raw_arrays(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for name, e in header.items()}


def test_arrays_of_three_types_hold_the_numbers_that_were_written(folder: Path, tmp_path: Path) -> None:
    arrays, norms = raw_arrays(folder / "model.safetensors"), {}
    numbers = np.array([0.5, -1.25, 3.0, 2.0**-10] * 16, np.float32)  # exact in all three
    upper_halves = (numbers.view(np.uint32) >> 16).astype("<u2")
    for name, dtype, data in (
        ("model.norm.weight", "F32", numbers.astype("<f4")),
        ("model.layers.0.input_layernorm.weight", "F16", numbers.astype("<f2")),
        ("model.layers.1.input_layernorm.weight", "BF16", upper_halves),
    ):
        arrays[name] = norms[name] = (dtype, [64], data.tobytes())
    write_safetensors(folder / "model.safetensors", arrays)
    weights = open_checkpoint(str(folder), tmp_path).weights
    for name in norms:
        assert weights.load(name).tolist() == numbers.tolist()


def test_only_what_the_architecture_needs_is_offered(folder: Path, tmp_path: Path) -> None:
    change(folder / "config.json", tie_word_embeddings=True)  # the file's own head is then not the model's
    arrays = raw_arrays(folder / "model.safetensors") | {"model.layers.0.self_attn.bias": ("BOOL", [4], bytes(4))}
    write_safetensors(folder / "model.safetensors", arrays)
    weights = open_checkpoint(str(folder), tmp_path).weights
    assert "lm_head.weight" not in weights
    assert set(weights.names()) == set(arrays) - {"lm_head.weight", "model.layers.0.self_attn.bias"}


EMBEDDINGS = {
    "opt": "model.decoder.embed_tokens.weight",
    "gpt2": "transformer.wte.weight",
    "llama3": "model.embed_tokens.weight",
}


@pytest.mark.parametrize("is_head_alone", [False, True])
@pytest.mark.parametrize(("name", "prefix"), [("gpt2", "transformer."), ("opt", "model."), ("opt", ""), ("llama3", "")])
def test_a_conversion_s_other_names_are_the_same_model(
    name: str, prefix: str, is_head_alone: bool, tmp_path: Path
) -> None:
    """Without their first part; and of the two names of one tied array, the hub's converter keeps either."""
    copy = shutil.copytree(TINY / name, tmp_path / name)
    arrays = raw_arrays(copy / "model.safetensors")
    assert "lm_head.weight" not in arrays
    if is_head_alone:
        arrays["lm_head.weight"] = arrays.pop(EMBEDDINGS[name])
    write_safetensors(copy / "model.safetensors", {key.removeprefix(prefix): value for key, value in arrays.items()})
    other, plain = open_checkpoint(str(copy), tmp_path).weights, open_checkpoint(str(TINY / name), tmp_path).weights
    assert set(other.names()) == set(plain.names())
    for array_name in plain.names():
        np.testing.assert_array_equal(other.load(array_name), plain.load(array_name))


def drop_tensor(folder: Path) -> None:
    arrays = raw_arrays(folder / "model.safetensors")
    del arrays["model.layers.1.mlp.up_proj.weight"]
    write_safetensors(folder / "model.safetensors", arrays)


def store_as_float8(folder: Path) -> None:
    arrays = raw_arrays(folder / "model.safetensors")
    arrays["model.norm.weight"] = ("F8_E4M3", [64], bytes(64))
    write_safetensors(folder / "model.safetensors", arrays)


def cut(num_bytes: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:num_bytes])

    return damage


def spoil_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"data_offsets":[', b'"data_offsetz":[', 1))


def garble_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'{"', b'{\xff"', 1))


def lie_about_the_size(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])


def misstate_shape(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"shape":[64,96]', b'"shape":[64,95]', 1))


def leave_a_pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(text)

    return damage


def configure(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "config.json", **values)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (remove("config.json"), r"config.json doesn't exist"),
    "no weights": (remove("model.safetensors"), "has no safetensors file$"),
    "no tokenizer": (remove("tokenizer.json"), "has no tokenizer.json"),
    "pickles only": (leave_a_pickle_only, "pickles, which are never loaded"),
    "config that is no JSON": (write("config.json", "{"), "config.json isn't valid JSON"),
    "config that is a list": (write("config.json", "[]"), "config.json isn't a JSON object"),
    "a missing tensor": (drop_tensor, r"no tensor 'model.layers.1.mlp.up_proj.weight'"),
    "a shape unlike the config's": (configure(intermediate_size=95), r"gate_proj.weight' has shape \(96, 64\)"),
    "more layers than tensors": (configure(num_hidden_layers=10**9), "1000000000 layers"),
    "an empty file": (cut(0), "cut short"),
    "a file cut in its header": (cut(500), "cut short"),
    "a file cut in its data": (cut(150_000), "cut short"),
    "a malformed entry": (spoil_header, "entry of .* is malformed"),
    "a header that is no JSON": (garble_header, "its header is no JSON"),
    "a header longer than any": (lie_about_the_size, "claims a header of"),
    "a shape unlike its bytes": (misstate_shape, r"is corrupt: .* shape \(64, 95\)"),
    "a shard that isn't there": (
        write("model.safetensors.index.json", '{"weight_map": {"a": "model-1.safetensors"}}'),
        "lacks the shard 'model-1.safetensors'",
    ),
    "a shard outside": (
        write("model.safetensors.index.json", '{"weight_map": {"a": "../llama/model.safetensors"}}'),
        "lacks the shard '../llama/model.safetensors'",
    ),
    "an index without a map": (write("model.safetensors.index.json", '{"weight_map": []}'), "weight_map is"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_folder_that_isn_t_whole_is_refused_in_one_line(what: str, folder: Path, tmp_path: Path) -> None:
    damage, words = DAMAGE[what]
    damage(folder)
    with pytest.raises(ModelError, match=words) as caught:
        _ = open_checkpoint(str(folder), tmp_path).tokenizer
    assert "\n" not in caught.value.message


def test_weights_of_a_type_that_we_don_t_read_are_another_runner_s(folder: Path, tmp_path: Path) -> None:
    store_as_float8(folder)
    checkpoint = open_checkpoint(str(folder), tmp_path)
    assert checkpoint.outline.vocab_size == checkpoint.architecture.vocab_size
    with pytest.raises(UnsupportedModel, match=r"'model.norm.weight' is F8_E4M3; supported are F32, F16, BF16"):
        _ = checkpoint.weights


def test_the_content_key_follows_weights_and_configuration(folder: Path, tmp_path: Path) -> None:
    key = open_checkpoint(str(folder), tmp_path).content_key
    assert open_checkpoint(str(TINY / "llama"), tmp_path).content_key == key
    change(folder / "config.json", rope_parameters={"rope_theta": 20000.0})
    assert open_checkpoint(str(folder), tmp_path).content_key != key


def test_opening_leaves_the_model_s_files_as_they_are(folder: Path, tmp_path: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    weights = open_checkpoint(str(folder), tmp_path / "cache").weights
    weights.load("model.norm.weight")[:] = 0.0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()} == before
    assert weights.load("model.norm.weight").any()


def test_the_tokenizer_s_side_files_are_read(folder: Path, tmp_path: Path) -> None:
    data = open_checkpoint(str(folder), tmp_path).tokenizer
    assert (data.bos_token, data.eos_token, data.pad_token) == ("<|endoftext|>", "<|im_end|>", "<|endoftext|>")
    assert (data.bos_token_id, data.eos_token_ids, data.add_bos) == (0, (2,), None)
    assert data.chat_template is not None
    assert data.tokenizer_json == (folder / "tokenizer.json").read_text("utf-8")


def test_generation_config_s_end_tokens_win_and_a_template_file_too(folder: Path, tmp_path: Path) -> None:
    change(folder / "generation_config.json", eos_token_id=[2, 7], temperature=0.6)
    change(folder / "tokenizer_config.json", bos_token={"content": "<b>"}, eos_token=...)
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<e>"}')
    (folder / "chat_template.jinja").write_text("from the file")
    checkpoint = open_checkpoint(str(folder), tmp_path)
    data = checkpoint.tokenizer
    assert data.eos_token_ids == (2, 7)
    assert (data.bos_token, data.eos_token) == ("<b>", "<e>")
    assert data.chat_template == "from the file"
    assert checkpoint.generation_defaults["temperature"] == 0.6


def test_of_named_templates_the_default_is_taken(folder: Path, tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    change(folder / "tokenizer_config.json", chat_template=named)
    assert open_checkpoint(str(folder), tmp_path).tokenizer.chat_template == "d"
