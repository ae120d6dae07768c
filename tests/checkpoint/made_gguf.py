"""Small GGUF files of the llama family, written with the gguf package as its converter would.

Owns the writing for tests.  Gives back what went in, in Hugging Face's names and order, so that a test can compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize

Array = npt.NDArray[Any]
Kind = gguf.GGMLQuantizationType

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 256, 4, 2, 64, 256, 64
# where the float16 scales lie in a block whose other bytes may be anything
SCALE_OFFSETS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
TOKENS = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, VOCAB))]


@dataclass(slots=True)
class MadeModel:
    """A written file, and each tensor's values by Hugging Face name."""

    path: Path
    arrays: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)


@dataclass(slots=True)
class Recipe:
    """What to write.  ``metadata`` overrides a key (after the architecture's dot), ``None`` leaves it out."""

    arch: str = "llama"
    kind: Kind = Kind.F32
    metadata: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    extra: Mapping[str, Array] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    has_bias: bool = False
    seed: int = 0


def write_model(path: Path, recipe: Recipe | None = None) -> MadeModel:
    """One layer; linear weights and the embedding in the recipe's type, norms and biases in float32."""
    recipe = recipe or Recipe()
    made, rng = MadeModel(path), np.random.default_rng(recipe.seed)
    writer = gguf.GGUFWriter(path, recipe.arch)
    _write_metadata(writer, recipe)
    for name, hf_name, shape in _tensors(recipe):
        if name in recipe.left_out:
            continue
        shape = recipe.shapes.get(name, shape)
        raw, values, kind = _random_tensor(rng, shape, recipe.kind if len(shape) == 2 else Kind.F32)
        writer.add_tensor(name, raw, raw_dtype=kind)
        made.arrays[hf_name] = _undo_permutation(values, hf_name) if recipe.arch == "llama" else values
    for name, array in recipe.extra.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


def _write_metadata(writer: gguf.GGUFWriter, recipe: Recipe) -> None:
    values: dict[str, Any] = {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **recipe.metadata,
    }
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(f"{recipe.arch}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{recipe.arch}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{recipe.arch}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{recipe.arch}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{recipe.arch}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([2, 3, 3, *[1] * (VOCAB - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(recipe: Recipe) -> list[tuple[str, str, tuple[int, ...]]]:
    q, kv, inner, outer = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, "model.layers.0.", "blk.0."
    tensors: list[tuple[str, str, tuple[int, ...]]] = [
        ("token_embd.weight", "model.embed_tokens.weight", (VOCAB, HIDDEN)),
        ("output_norm.weight", "model.norm.weight", (HIDDEN,)),
        ("output.weight", "lm_head.weight", (VOCAB, HIDDEN)),
        (f"{outer}attn_norm.weight", f"{inner}input_layernorm.weight", (HIDDEN,)),
        (f"{outer}ffn_norm.weight", f"{inner}post_attention_layernorm.weight", (HIDDEN,)),
        (f"{outer}attn_q.weight", f"{inner}self_attn.q_proj.weight", (q, HIDDEN)),
        (f"{outer}attn_k.weight", f"{inner}self_attn.k_proj.weight", (kv, HIDDEN)),
        (f"{outer}attn_v.weight", f"{inner}self_attn.v_proj.weight", (kv, HIDDEN)),
        (f"{outer}attn_output.weight", f"{inner}self_attn.o_proj.weight", (HIDDEN, q)),
        (f"{outer}ffn_gate.weight", f"{inner}mlp.gate_proj.weight", (FFN, HIDDEN)),
        (f"{outer}ffn_up.weight", f"{inner}mlp.up_proj.weight", (FFN, HIDDEN)),
        (f"{outer}ffn_down.weight", f"{inner}mlp.down_proj.weight", (HIDDEN, FFN)),
    ]
    if recipe.has_bias:
        sizes = {"q": q, "k": kv, "v": kv}
        tensors += [(f"{outer}attn_{n}.bias", f"{inner}self_attn.{n}_proj.bias", (sizes[n],)) for n in "qkv"]
    if recipe.arch == "qwen3":
        tensors += [(f"{outer}attn_{n}_norm.weight", f"{inner}self_attn.{n}_norm.weight", (HEAD_DIM,)) for n in "qk"]
    return tensors


def _random_tensor(rng: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> tuple[Array, Array, Kind]:
    """Bytes as stored, the float32 values that the gguf package makes of them, and the type."""
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == Kind.F32:
        return values, values, kind
    raw = random_blocks(rng, shape, kind) if kind.name in SCALE_OFFSETS else quantize(values, kind)
    return raw, dequantize(raw, kind), kind


def random_blocks(rng: np.random.Generator, shape: tuple[int, ...], kind: Kind) -> npt.NDArray[np.uint8]:
    """K-quants, which the gguf package can't make: any bytes are valid, if only the scales are finite."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // block, size), dtype=np.uint8)
    for offset in SCALE_OFFSETS[kind.name]:
        scales = rng.uniform(-0.1, 0.1, blocks.shape[:-1]).astype(np.float16)
        blocks[..., offset : offset + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def _undo_permutation(values: Array, hf_name: str) -> Array:
    """Row by row, by the converter's rule: of a head's rows, the stored one 2i is row i, 2i + 1 is row i + dim / 2."""
    if not hf_name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")):
        return values
    result, half = np.empty_like(values), HEAD_DIM // 2
    for row in range(len(values)):
        head, within = divmod(row, HEAD_DIM)
        result[head * HEAD_DIM + (within // 2) + (half if within % 2 else 0)] = values[row]
    return result
