"""Hugging Face folders with odd files: one line that names file and fault, and nothing is opened that would wait."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everystep.checkpoint import open_checkpoint, suggested_sampling
from everystep.errors import ModelError
from everystep.text import Tokenizer

TINY = Path(__file__).parents[1] / "golden" / "tiny"
FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "opt", "gpt2")
WEIGHTS = "model.safetensors"
HEADS, NORM = "model.embed_tokens.weight", "model.norm.weight"


def use(folder: Path, cache_dir: Path) -> None:
    """All that a server does with a folder before it answers."""
    checkpoint = open_checkpoint(str(folder), cache_dir)
    json.dumps(suggested_sampling(checkpoint), allow_nan=False)
    tokenizer = Tokenizer(checkpoint.tokenizer)
    assert all(0 <= token_id < 2**31 for token_id in tokenizer.eos_token_ids)
    tokenizer.encode_prompt("Hello")
    for name in checkpoint.weights.names():
        checkpoint.weights.load(name)


def refusal(folder: Path, cache_dir: Path) -> str | None:
    try:
        use(folder, cache_dir)
    except ModelError as error:
        return error.message
    return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(TINY / "llama", tmp_path / "llama")


# --- one file that isn't what it should be -------------------------------------------------------
def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def an_empty_file(path: Path) -> None:
    path.touch()


def a_file_of_a_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room


KINDS = (a_folder, a_link_to_nothing, a_link_to_itself, a_pipe, an_empty_file, a_file_of_a_terabyte)
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
         "special_tokens_map.json", "model.safetensors.index.json", WEIGHTS)  # fmt: skip
HARMLESS = {("chat_template.jinja", an_empty_file)}  # an empty text is a template


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_what_stands_in_a_file_s_place_is_said_and_never_waited_for(
    name: str, kind: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    (folder / name).unlink(missing_ok=True)
    kind(folder / name)
    words = refusal(folder, tmp_path)
    if (name, kind) in HARMLESS:
        assert words is None
    else:
        assert words is not None
        assert str(folder) in words
        assert "\n" not in words


@pytest.mark.parametrize("kind", [a_pipe, a_link_to_nothing, a_link_to_itself, an_empty_file])
@pytest.mark.parametrize("name", ["m.gguf", "m"])
def test_a_model_that_is_no_file_is_said_and_never_waited_for(
    name: str, kind: Callable[[Path], None], tmp_path: Path
) -> None:
    kind(tmp_path / name)
    with pytest.raises(ModelError, match=str(tmp_path / name)):
        open_checkpoint(str(tmp_path / name), tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_file_that_may_not_be_read_is_said(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / name).chmod(0)
    assert "Permission denied" in (refusal(folder, tmp_path) or "")


def test_a_file_that_the_system_won_t_read_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, for a root that may read everything."""

    def denied(path: Path, *args: Any, **options: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", denied)
    assert refusal(folder, tmp_path) == f"can't read {folder / 'config.json'}: Permission denied"


# --- texts that are no JSON of ours --------------------------------------------------------------
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "cut": b'{"a": 1',
    "NUL": b"\x00",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "no UTF-8": b'{"a": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "100,000 lists deep": b'{"a":' + b"[" * 100_000,
    "100,000 objects deep": b'{"a":' * 100_000,
    "a number of 5,000 digits": b'{"a": ' + b"1" * 5_000 + b"}",
    "half a character": b'{"a": "\\ud800"}',
    "the wrong half, as a key": b'{"\\udc00": 1}',
}


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_a_text_that_is_no_object_is_refused_with_the_file_s_name(
    name: str, what: str, folder: Path, tmp_path: Path
) -> None:
    (folder / name).write_bytes(TEXTS[what])
    words = refusal(folder, tmp_path)
    assert words is not None
    assert str(folder) in words
    assert "\n" not in words
    assert len(words) < 600


def test_an_escaped_character_in_two_halves_is_whole(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "note": "\N{ROBOT FACE}"}), "ascii")
    assert "\\ud83e" in (folder / "config.json").read_text()
    assert refusal(folder, tmp_path) is None


# --- values that can't be ------------------------------------------------------------------------
Case = tuple[str, str, Any, str]
CASES: list[Case] = [
    ("config.json", "num_hidden_layers", 10**12, "num_hidden_layers is 1000000000000, not a whole number from 1 to"),
    ("config.json", "num_hidden_layers", 10**9, "claims 1000000000 layers, but holds only"),
    ("config.json", "num_hidden_layers", -1, "num_hidden_layers is -1"),
    ("config.json", "num_hidden_layers", 2.0, "num_hidden_layers is 2.0"),
    ("config.json", "num_hidden_layers", True, "num_hidden_layers is True"),
    ("config.json", "hidden_size", 2**31 - 2, "expected"),
    ("config.json", "hidden_size", "64", "hidden_size is '64'"),
    ("config.json", "vocab_size", 0, "vocab_size is 0"),
    ("config.json", "vocab_size", 2**62, "vocab_size is 4611686018427387904"),
    ("config.json", "vocab_size", 10**400, "vocab_size is 1000000000"),
    ("config.json", "max_position_embeddings", 2**31, "max_position_embeddings is 2147483648"),
    ("config.json", "rms_norm_eps", 10**400, "rms_norm_eps is 10000000"),
    ("config.json", "rms_norm_eps", math.nan, "rms_norm_eps is nan, not a finite number"),
    ("config.json", "rms_norm_eps", -1, "rms_norm_eps is -1, not a number of at least 0"),
    ("config.json", "rope_parameters", {"rope_theta": 0}, "rope_theta is 0, not a number above 0"),
    ("config.json", "rope_parameters", {"rope_type": "linear", "factor": -2.0}, "factor is -2.0"),
    (
        "config.json",
        "rope_parameters",
        {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4},
        "high_freq_factor is 4, not above low_freq_factor",
    ),
    ("config.json", "model_type", "a" * 10**5, "of model_type 'aaa"),
    ("config.json", "hidden_act", "a" * 10**5, "hidden_act 'aaa"),
    ("config.json", "mlp_bias", "a" * 10**5, "mlp_bias='aaa"),
    ("config.json", "bos_token_id", [0.5], "bos_token_id is"),
    ("generation_config.json", "eos_token_id", 2**70, "eos_token_id is 1180591620717411303424"),
    ("generation_config.json", "eos_token_id", [2, -7], "eos_token_id is"),
    ("generation_config.json", "eos_token_id", "two", "eos_token_id is 'two', not a token id or a list of them"),
    ("generation_config.json", "eos_token_id", {"a": 1}, "eos_token_id is"),
    ("tokenizer_config.json", "chat_template", 7, "chat_template is 7, not a text, or a list of named ones"),
    ("tokenizer_config.json", "chat_template", [{"name": "default", "template": 7}], "chat_template is"),
]


@pytest.mark.parametrize(("name", "key", "value", "words"), CASES, ids=lambda part: repr(part)[:40])
def test_a_value_that_can_t_be_is_refused_by_name(
    name: str, key: str, value: Any, words: str, folder: Path, tmp_path: Path
) -> None:
    path = folder / name
    change(path, key, value)
    found = refusal(folder, tmp_path)
    assert found is not None
    assert words in found
    assert str(folder) in found
    assert len(found) < 600


def change(path: Path, key: str, value: Any) -> None:
    values = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**values, key: value}), "utf-8")


@pytest.mark.parametrize("value", [10**400, -(10**400), math.inf, math.nan, "hot", [1], True])
def test_a_suggestion_that_can_t_be_is_none(value: Any, folder: Path, tmp_path: Path) -> None:
    for key in ("temperature", "top_k"):
        change(folder / "generation_config.json", key, value)
    assert suggested_sampling(open_checkpoint(str(folder), tmp_path)) == {}


ODD = (None, True, 0, -1, 1, 2**31, 2**62, 2**64, 10**400, 0.5, -0.0, 1e308, math.nan, math.inf, "", "x", "\ud800",
       "a" * 10**5, [], [1], [{}], {}, {"a": 1}, [[[[]]]], "20", 2.0)  # fmt: skip
MORE_KEYS = ("rope_scaling", "rope_parameters", "quantization_config", "text_config", "head_dim", "sliding_window",
             "layer_types", "architectures", "chat_template", "added_tokens_decoder", "temperature")  # fmt: skip


def odd_folders(folder: Path, values: tuple[Any, ...]) -> Iterator[str]:
    """One value of one key after the other; what was there is put back."""
    for path in sorted(folder.glob("*config.json")):
        text = path.read_text("utf-8")
        for key in [*json.loads(text), *MORE_KEYS]:
            for value in values:
                change(path, key, value)
                yield f"{path.name} {key}={value!r:.20}"
                path.write_text(text, "utf-8")


def try_all(family: str, values: tuple[Any, ...], tmp_path: Path) -> None:
    folder = shutil.copytree(TINY / family, tmp_path / family)
    num_refused = 0
    for what in odd_folders(folder, values):
        words = refusal(folder, tmp_path)
        assert words is None or (str(folder) in words and "\n" not in words and len(words) < 600), (what, words)
        num_refused += words is not None
    assert num_refused > 20


def test_every_key_with_odd_values_is_refused_in_one_line_or_harmless(tmp_path: Path) -> None:
    try_all("llama", (10**400, "\ud800", [[]], -1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_with_every_odd_value_is_refused_in_one_line_or_harmless(family: str, tmp_path: Path) -> None:
    try_all(family, ODD, tmp_path)


# --- safetensors ---------------------------------------------------------------------------------
def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(path: Path, header: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + header_of(path)[1])


def entry(**values: Any) -> Callable[[dict[str, Any]], bytes]:
    def damage(header: dict[str, Any]) -> bytes:
        header[NORM] = header[NORM] | values
        return json.dumps(header).encode()

    return damage


def overlap(header: dict[str, Any]) -> bytes:
    header[NORM] = header["model.layers.0.input_layernorm.weight"]
    return json.dumps(header).encode()


def repeat(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode()[:-1] + f', "{NORM}": {json.dumps(header[NORM])}}}'.encode()


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "two arrays in one place": (overlap, "overlap"),
    "one array twice": (repeat, "a name stands in it twice"),
    "an infinite size": (entry(shape=[math.inf]), f"entry of '{NORM}' is malformed"),
    "a size in words": (entry(shape=["64"]), "is malformed"),
    "a size with a fraction": (entry(shape=[64.0]), "is malformed"),
    "a size of true": (entry(shape=[True]), "is malformed"),
    "a negative size": (entry(shape=[-64]), "for shape"),
    "a size of 2^62": (entry(shape=[2**62]), "for shape"),
    "a dimension more": (entry(shape=[8, 8]), r"has shape \(8, 8\), expected \(64,\)"),
    "an end beyond the file": (entry(data_offsets=[0, 2**62]), "cut short"),
    "an end before the begin": (entry(data_offsets=[128, 0]), "corrupt"),
    "a begin before the data": (entry(data_offsets=[-128, 0]), "corrupt"),
    "infinite places": (entry(data_offsets=[0, math.inf]), "is malformed"),
    "three places": (entry(data_offsets=[0, 1, 2]), "is malformed"),
    "places in words": (entry(data_offsets=["0", "128"]), "is malformed"),
    "no places": (entry(data_offsets=None), "is malformed"),
    "a type of a megabyte": (entry(dtype="x" * 2**20), "is xxx"),
    "no object": (lambda _: b"[]", "its header is no JSON object"),
    "no JSON": (lambda _: b"x", "its header is no JSON"),
    "100,000 objects deep": (lambda _: b'{"a":' * 100_000, "its header is no JSON"),
    "no arrays": (lambda _: b"{}", "holds only 0 tensors"),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
def test_a_header_that_lies_is_refused_in_one_line(what: str, folder: Path, tmp_path: Path) -> None:
    damage, words = HEADERS[what]
    with_header(folder / WEIGHTS, damage(header_of(folder / WEIGHTS)[0]))
    with pytest.raises(ModelError, match=words) as caught:
        use(folder, tmp_path)
    assert str(folder) in caught.value.message
    assert len(caught.value.message) < 600


def fuzz_header(tmp_path: Path, max_examples: int) -> None:
    folder = shutil.copytree(TINY / "llama", tmp_path / "llama")
    path, data, outcomes = folder / WEIGHTS, (folder / WEIGHTS).read_bytes(), {"refused": 0, "opened": 0}
    end = 8 + int.from_bytes(data[:8], "little")

    @settings(max_examples=max_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, end - 1), st.integers(0, 8), st.binary(max_size=4) | st.text('0189-.eE[]{},:"', max_size=4))
    def each(begin: int, num_removed: int, new: bytes | str) -> None:
        inserted = new.encode() if isinstance(new, str) else new
        path.write_bytes(data[:begin] + inserted + data[begin + num_removed :])
        words = refusal(folder, tmp_path)
        assert words is None or (str(folder) in words and "\n" not in words)
        outcomes["opened" if words is None else "refused"] += 1

    each()
    assert min(outcomes.values()) > 0, outcomes


def test_any_change_to_a_header_is_refused_in_one_line_or_harmless(tmp_path: Path) -> None:
    fuzz_header(tmp_path, 150)


@pytest.mark.slow
def test_any_change_to_a_header_is_refused_in_one_line_or_harmless_many_times(tmp_path: Path) -> None:
    fuzz_header(tmp_path, 3000)


# --- shards --------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b.safetensors", "x" * 10_000])
def test_an_index_names_files_of_its_own_folder_alone(place: str, folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {HEADS: place}}))
    words = refusal(folder, tmp_path)
    assert words is not None
    assert "lacks the shard" in words
    assert len(words) < 600


def test_a_shard_too_many_is_passed_over_and_one_too_few_is_not(tmp_path: Path) -> None:
    folder = shutil.copytree(TINY / "qwen3", tmp_path / "qwen3")
    shutil.copy(sorted(folder.glob("model-*.safetensors"))[0], folder / "another.safetensors")
    assert refusal(folder, tmp_path) is None
    sorted(folder.glob("model-*.safetensors"))[0].unlink()
    assert "lacks the shard" in (refusal(folder, tmp_path) or "")
