"""The GGUF header: as the reference reader sees it, and whatever befalls it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from checkpoint.made_gguf import write_model
from everystep.checkpoint import default_cache_dir, open_checkpoint, pull
from everystep.checkpoint.gguf_file import read_gguf
from everystep.errors import ModelError


def write_every_type(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -2_000_000_000)
    writer.add_float32("a.f32", 0.1)
    writer.add_bool("a.true", True)
    writer.add_bool("a.false", False)
    writer.add_string("a.text", "안녕 🙂")
    writer.add_string("a.empty", "")
    writer.add_uint64("a.u64", 2**63)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float64("a.f64", 0.1)
    writer.add_array("a.texts", ["", "one", "ü", "한"])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -0.25])
    writer.add_custom_alignment(64)
    writer.add_tensor("first", np.arange(10, dtype=np.float32).reshape(2, 5))
    writer.add_tensor("second", np.arange(7, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def assert_as_the_reference_reads(path: Path) -> None:
    reference, ours = gguf.GGUFReader(path), read_gguf(path)
    fields = {key: field.contents() for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == fields
    assert set(ours.tensors) == {tensor.name for tensor in reference.tensors}
    for tensor in reference.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert info.type_number == tensor.tensor_type
        assert info.offset == tensor.data_offset


def test_every_type_of_metadata_and_every_place_is_as_the_reference_reads_it(tmp_path: Path) -> None:
    write_every_type(tmp_path / "m.gguf")
    assert_as_the_reference_reads(tmp_path / "m.gguf")


@pytest.mark.slow
def test_the_default_model_s_header_is_as_the_reference_reads_it() -> None:
    assert_as_the_reference_reads(pull("smollm2-135m", default_cache_dir()))


def test_without_the_vocabulary_the_rest_is_the_same(tmp_path: Path) -> None:
    write_every_type(tmp_path / "m.gguf")
    whole, lean = read_gguf(tmp_path / "m.gguf"), read_gguf(tmp_path / "m.gguf", with_vocabulary=False)
    assert lean.tensors == whole.tensors
    assert lean.metadata == {key: value for key, value in whole.metadata.items() if key != "a.texts"}


def header_len(path: Path) -> int:
    return min(info.offset for info in read_gguf(path).tensors.values())


def use(path: Path, cache_dir: Path) -> None:
    """All that a server does with a file."""
    checkpoint = open_checkpoint(str(path), cache_dir)
    assert checkpoint.tokenizer.tokenizer_json
    for name in checkpoint.weights.names():
        checkpoint.weights.load(name)


def refusal(path: Path, cache_dir: Path) -> str | None:
    try:
        use(path, cache_dir)
    except ModelError as error:
        return error.message
    return None


def test_a_file_cut_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "whole.gguf").path
    data, end = whole.read_bytes(), header_len(whole)
    cut = tmp_path / "cut.gguf"
    for length in [0, 1, 4, 7, *range(8, end, 61), end, end + 1, len(data) - 1]:
        cut.write_bytes(data[:length])
        with pytest.raises(ModelError) as caught:
            use(cut, tmp_path)
        assert "\n" not in caught.value.message


def flip(data: bytearray, draw: random.Random, end: int) -> None:
    data[draw.randrange(end)] ^= 1 << draw.randrange(8)


def overwrite(data: bytearray, draw: random.Random, end: int) -> None:
    begin = draw.randrange(end - 8)
    data[begin : begin + 8] = draw.choice([b"\xff" * 8, bytes(8), draw.randbytes(8)])


@pytest.mark.parametrize("damage", [flip, overwrite])
def test_a_damaged_header_gives_a_model_error_or_none(
    damage: Callable[[bytearray, random.Random, int], None], tmp_path: Path
) -> None:
    whole = write_model(tmp_path / "whole.gguf").path
    data, end, draw = whole.read_bytes(), header_len(whole), random.Random(7)
    damaged, refusals = tmp_path / "damaged.gguf", []
    for _ in range(250):
        changed = bytearray(data)
        damage(changed, draw, end)
        damaged.write_bytes(changed)
        refusals.append(refusal(damaged, tmp_path))
    assert sum(words is not None for words in refusals) > 50
    assert not any("\n" in words for words in refusals if words)


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        (b"PK\x03\x04" + bytes(40), "no GGUF file"),
        (b"GGUF" + bytes([1, 0, 0, 0]) + bytes(16), "GGUF version 1"),
        (b"GGUF" + bytes([0, 0, 0, 3]) + bytes(16), "GGUF version 50331648"),  # big endian
        (b"", "empty"),
    ],
)
def test_what_is_no_gguf_file_of_ours_is_said_so(begin: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(begin)
    with pytest.raises(ModelError, match=words):
        open_checkpoint(str(tmp_path / "m.gguf"), tmp_path)


def test_the_content_key_follows_the_content_and_not_the_place(tmp_path: Path) -> None:
    first = write_model(tmp_path / "a.gguf").path
    second = tmp_path / "b.gguf"
    shutil.copyfile(first, second)
    key = open_checkpoint(str(first), tmp_path).content_key
    assert open_checkpoint(str(second), tmp_path).content_key == key
    with second.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert open_checkpoint(str(second), tmp_path).content_key != key
