"""Weights of a GGUF file: every type, the rotary order, and what is refused."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from checkpoint.made_gguf import HEAD_DIM, HIDDEN, Recipe, random_blocks, write_model
from everystep.architecture import RopeScaling
from everystep.checkpoint import open_checkpoint
from everystep.checkpoint.gguf_weights import dequantise
from everystep.errors import ModelError

Kind = gguf.GGMLQuantizationType
KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_every_type_is_what_the_gguf_package_makes_of_it(kind: str, tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", Recipe(kind=Kind[kind]))
    weights = open_checkpoint(str(made.path), tmp_path).weights
    assert set(weights.names()) == set(made.arrays)
    for name, expected in made.arrays.items():
        array = weights.load(name)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert array.flags.writeable
        np.testing.assert_array_equal(array, expected, err_msg=name)


def test_a_block_of_q4_1_is_scale_times_nibble_plus_minimum() -> None:
    nibbles = [(7 * i + 3) % 16 for i in range(32)]
    packed = bytes(nibbles[i] | nibbles[i + 16] << 4 for i in range(16))
    block = struct.pack("<ee", 0.25, -1.5) + packed
    values = dequantise(np.frombuffer(block, np.uint8), "Q4_1", (1, 32))
    assert values.tolist() == [[0.25 * nibble - 1.5 for nibble in nibbles]]


def test_a_block_of_q8_0_is_scale_times_signed_byte() -> None:
    numbers = [5 * i - 80 for i in range(32)]
    block = struct.pack("<e32b", 0.5, *numbers)
    assert dequantise(np.frombuffer(block, np.uint8), "Q8_0", (1, 32)).tolist() == [[n / 2 for n in numbers]]


def test_blocks_of_q6_k_follow_the_plain_formula() -> None:
    raw = random_blocks(np.random.default_rng(1), (2, 256), Kind.Q6_K)
    values = dequantise(raw.reshape(-1), "Q6_K", (2, 256))
    for row, block in zip(values, raw, strict=True):
        np.testing.assert_allclose(row, plain_q6_k(bytes(block)), rtol=1e-6)


def plain_q6_k(block: bytes) -> list[float]:
    """ggml's format, number by number: 4 low bits, 2 high bits, a signed 8-bit scale for 16 numbers, one float16."""
    low, high, scales = block[:128], block[128:192], struct.unpack("16b", block[192:208])
    (scale,) = struct.unpack("<e", block[208:])
    values = []
    for i in range(256):
        half, within = divmod(i, 128)
        quarter, column = divmod(within, 32)
        nibble = low[64 * half + 32 * (quarter % 2) + column] >> (4 if quarter >= 2 else 0) & 15
        top = high[32 * half + column] >> (2 * quarter) & 3
        values.append(scale * scales[i // 16] * ((nibble | top << 4) - 32))
    return values


def test_only_the_architecture_llama_has_its_rotary_rows_interleaved(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", Recipe(arch="qwen2", has_bias=True))
    checkpoint = open_checkpoint(str(made.path), tmp_path)
    assert checkpoint.architecture.family == "qwen2"
    assert checkpoint.architecture.has_attention_bias
    for name, expected in made.arrays.items():
        np.testing.assert_array_equal(checkpoint.weights.load(name), expected, err_msg=name)


def test_qwen3_has_norms_of_its_heads(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", Recipe(arch="qwen3", metadata={"attention.key_length": HEAD_DIM}))
    checkpoint = open_checkpoint(str(made.path), tmp_path)
    assert checkpoint.architecture.family == "qwen3"
    assert checkpoint.weights.load("model.layers.0.self_attn.q_norm.weight").shape == (HEAD_DIM,)


def test_a_file_without_a_head_has_its_embedding_as_head(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf", Recipe(left_out=("output.weight",)))
    checkpoint = open_checkpoint(str(made.path), tmp_path)
    assert checkpoint.architecture.is_head_tied
    assert "lm_head.weight" not in checkpoint.weights


def test_hyperparameters_are_the_metadata_s(tmp_path: Path) -> None:
    metadata = {"rope.freq_base": 50000.0, "attention.sliding_window": 16, "rope.dimension_count": HEAD_DIM}
    a = open_checkpoint(str(write_model(tmp_path / "m.gguf", Recipe(metadata=metadata)).path), tmp_path).architecture
    assert (a.family, a.num_layers, a.hidden_size, a.num_heads, a.num_kv_heads) == ("llama", 1, 256, 4, 2)
    assert (a.head_dim, a.intermediate_size, a.vocab_size, a.max_context_len) == (64, 256, 64, 128)
    assert (a.rope_theta, a.sliding_window, a.is_head_tied, a.has_attention_bias) == (50000.0, 16, False, False)
    assert a.norm_eps == pytest.approx(1e-5)


def test_linear_rotary_scaling_is_read(tmp_path: Path) -> None:
    metadata = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    made = write_model(tmp_path / "m.gguf", Recipe(metadata=metadata))
    scaling = open_checkpoint(str(made.path), tmp_path).architecture.rope_scaling
    assert scaling == RopeScaling(kind="linear", factor=4.0)


def llama3_factors(theta: float, factor: float) -> list[float]:
    """The divisors that ggml's converter stores for Llama 3.1, frequency by frequency."""
    low_wavelength, high_wavelength = 8192 / 1, 8192 / 4
    factors = []
    for i in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * theta ** (i / HEAD_DIM)
        if wavelength < high_wavelength:
            factors.append(1.0)
        elif wavelength > low_wavelength:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def test_llama_3_s_scaling_is_recognised_by_its_stored_factors(tmp_path: Path) -> None:
    factors = np.array(llama3_factors(500000.0, 32.0), np.float32)
    assert len(set(factors.tolist())) > 3  # some kept, some divided, some between
    recipe = Recipe(metadata={"rope.freq_base": 500000.0}, extra={"rope_freqs.weight": factors})
    checkpoint = open_checkpoint(str(write_model(tmp_path / "m.gguf", recipe).path), tmp_path)
    scaling = checkpoint.architecture.rope_scaling
    assert scaling == RopeScaling(kind="llama3", factor=32.0, original_max_position=8192)
    assert "rope_freqs.weight" not in set(checkpoint.weights.names())


REFUSED = {
    "rotary scaling": (Recipe(metadata={"rope.scaling.type": "yarn"}), "'yarn'"),
    "rotary factors": (Recipe(extra={"rope_freqs.weight": np.full(HEAD_DIM // 2, 3, np.float32)}), "rope_freqs"),
    "architecture": (Recipe(arch="gemma"), "'gemma'"),
    "quantisation": (Recipe(kind=Kind.Q5_0), "Q5_0"),
    "experts": (Recipe(metadata={"expert_count": 8}), "mixture of experts"),
    "partial rotation": (Recipe(metadata={"rope.dimension_count": 32}), "rope.dimension_count is 32"),
    "uneven heads": (Recipe(metadata={"attention.head_count_kv": 3}), "4 heads can't share 3"),
    "heads by layer": (Recipe(metadata={"attention.head_count": [4, 4]}), "attention.head_count is"),
    "missing key": (Recipe(metadata={"block_count": None}), "has no llama.block_count"),
    "missing tensor": (Recipe(left_out=("blk.0.ffn_up.weight",)), "mlp.up_proj.weight"),
    "missing embedding": (Recipe(left_out=("token_embd.weight",)), "token_embd.weight"),
    "more layers than tensors": (Recipe(metadata={"block_count": 2_000_000_000}), "2000000000 layers"),
    "wrong shape": (Recipe(shapes={"blk.0.attn_k.weight": (64, HIDDEN)}), r"k_proj.weight.*\(64, 256\).*\(128, 256\)"),
    "unknown tensor": (Recipe(extra={"blk.0.attn_sinks.weight": np.ones(4, np.float32)}), "attn_sinks"),
    "output bias": (Recipe(extra={"blk.0.attn_output.bias": np.ones(HIDDEN, np.float32)}), "o_proj.bias"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_computed_wrongly_is_refused_by_name(what: str, tmp_path: Path) -> None:
    recipe, words = REFUSED[what]
    made = write_model(tmp_path / "m.gguf", recipe)
    with pytest.raises(ModelError, match=words) as caught:
        open_checkpoint(str(made.path), tmp_path)
    assert "\n" not in caught.value.message
    assert str(made.path) in caught.value.message


def test_a_tensor_that_isn_t_there_is_named(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=r"no tensor 'model.layers.7.mlp.up_proj.weight'"):
        open_checkpoint(str(made.path), tmp_path).weights.load("model.layers.7.mlp.up_proj.weight")


def test_a_file_that_shrinks_after_opening_gives_an_error_and_no_crash(tmp_path: Path) -> None:
    made = write_model(tmp_path / "m.gguf")
    weights = open_checkpoint(str(made.path), tmp_path).weights
    weights.load("model.embed_tokens.weight")
    with made.path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelError, match="cut short"):
        weights.load("model.embed_tokens.weight")
