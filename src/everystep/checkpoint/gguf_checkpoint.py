"""A GGUF file as a checkpoint: hyperparameters, arrays by Hugging Face name, dequantised on demand.

Owns the translation of ggml's names, quantisation types and rotary order.  Ignorant of the container's bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everystep.architecture import Architecture, Checkpoint, Family, RopeScaling
from everystep.checkpoint.digest import remembered_sha256
from everystep.checkpoint.expected import check_shapes
from everystep.checkpoint.gguf_file import GgufFile, TensorInfo, read_gguf
from everystep.checkpoint.gguf_tokenizer import read_tokenizer
from everystep.errors import ModelError

FAMILIES: dict[str, Family] = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "BF16": 30}
TYPE_NAMES = {number: name for name, number in TYPES.items()}

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_freqs.weight",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def open_gguf(path: Path, name: str, cache_dir: Path) -> Checkpoint:
    """Open a GGUF file of the llama family.  Raises :class:`ModelError` for what isn't supported, by name."""
    file = read_gguf(path)
    weights = GgufWeights(file)
    architecture = _architecture(file, weights)
    check_shapes(architecture, {name: weights.shape(name) for name in weights.names()}, str(path))
    return Checkpoint(
        name=name,
        path=str(path),
        content_key=remembered_sha256(path, cache_dir),
        architecture=architecture,
        weights=weights,
        read_tokenizer=lambda: read_tokenizer(file.metadata, str(path)),
    )


class GgufWeights:
    """Tensors of a file by Hugging Face name."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._infos = {_hf_name(info.name): info for info in file.tensors.values()}
        for info in self._infos.values():
            _check_tensor(info, file)
        arch = file.metadata.get("general.architecture")
        self._heads = {
            "q_proj": int(file.metadata.get(f"{arch}.attention.head_count", 0)),
            "k_proj": int(file.metadata.get(f"{arch}.attention.head_count_kv", 0)),
        }
        self._is_permuted = arch == "llama"  # the converter interleaves rotary pairs for this one alone

    def names(self) -> Iterable[str]:
        return self._infos

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def shape(self, name: str) -> tuple[int, ...]:
        return self._infos[name].shape

    def load(self, name: str) -> npt.NDArray[np.float32]:
        info = self._infos.get(name)
        if info is None:
            raise ModelError(f"{self._file.path} has no tensor {name!r}")
        array = _dequantise(info, self._file)
        part = name.split(".")[-2] if name.count(".") > 1 else ""
        if self._is_permuted and part in self._heads:
            array = _unpermute(array, self._heads[part] or self._heads["q_proj"])
        return array


def _dequantise(info: TensorInfo, file: GgufFile) -> npt.NDArray[np.float32]:
    from gguf.constants import GGMLQuantizationType  # a quarter of a second, paid where weights are read
    from gguf.quants import dequantize

    raw = np.frombuffer(file.data, np.uint8, _num_bytes(info), info.offset)
    kind = GGMLQuantizationType(info.type_number)
    if kind is GGMLQuantizationType.F32:
        values = raw.view(np.float32)
    elif kind is GGMLQuantizationType.F16:
        values = raw.view(np.float16)
    else:
        values = dequantize(raw.reshape(*info.shape[:-1], -1), kind)
    return np.array(values, np.float32).reshape(info.shape)


def _unpermute(array: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """From ggml's interleaved rotary pairs to Hugging Face's two halves, per head."""
    pairs = array.reshape(num_heads, array.shape[0] // num_heads // 2, 2, -1)  # [heads, head_dim/2, 2, in]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def _check_tensor(info: TensorInfo, file: GgufFile) -> None:
    if info.type_number not in TYPE_NAMES:
        raise ModelError(
            f"{file.path}: tensor {info.name!r} has quantisation type {_type_name(info.type_number)}; "
            f"supported are {', '.join(TYPES)}"
        )
    if info.offset + _num_bytes(info) > len(file.data):
        raise ModelError(
            f"{file.path} is cut short: tensor {info.name!r} ends beyond the file's {len(file.data)} bytes"
        )


def _type_name(number: int) -> str:
    from gguf.constants import GGMLQuantizationType

    return GGMLQuantizationType(number).name if number in set(GGMLQuantizationType) else str(number)


def _num_bytes(info: TensorInfo) -> int:
    block, size = BLOCK_SIZES[TYPE_NAMES[info.type_number]]
    return math.prod(info.shape) // block * size


# elements and bytes of a block of each type (ggml-common.h)
BLOCK_SIZES = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}


def _hf_name(name: str) -> str:
    """``blk.3.attn_q.weight`` → ``model.layers.3.self_attn.q_proj.weight``; unknown names stay as they are."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in BLOCK_NAMES:
        return f"model.layers.{parts[1]}.{BLOCK_NAMES[parts[2]]}.{parts[3]}"
    return name


def _architecture(file: GgufFile, weights: GgufWeights) -> Architecture:
    meta, path = file.metadata, str(file.path)
    arch = meta.get("general.architecture")
    if arch not in FAMILIES:
        raise ModelError(f"{path} is of architecture {arch!r}; supported are {', '.join(FAMILIES)}")
    heads = int(_need(meta, f"{arch}.attention.head_count", path))
    hidden = int(_need(meta, f"{arch}.embedding_length", path))
    if "model.embed_tokens.weight" not in weights:
        raise ModelError(f"{path} has no tensor 'token_embd.weight'")
    return Architecture(
        family=FAMILIES[arch],
        num_layers=int(_need(meta, f"{arch}.block_count", path)),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=int(meta.get(f"{arch}.attention.head_count_kv", heads)),
        head_dim=int(meta.get(f"{arch}.attention.key_length", hidden // heads)),
        intermediate_size=int(_need(meta, f"{arch}.feed_forward_length", path)),
        vocab_size=weights.shape("model.embed_tokens.weight")[0],
        max_context_len=int(_need(meta, f"{arch}.context_length", path)),
        norm_eps=float(_need(meta, f"{arch}.attention.layer_norm_rms_epsilon", path)),
        rope_theta=float(meta.get(f"{arch}.rope.freq_base", 10000.0)),
        rope_scaling=_rope_scaling(meta, arch, path),
        has_attention_bias="model.layers.0.self_attn.q_proj.bias" in weights,
        is_head_tied="lm_head.weight" not in weights,
    )


def _rope_scaling(meta: dict[str, Any], arch: str, path: str) -> RopeScaling | None:
    kind = meta.get(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise ModelError(f"{path} scales its rotary embedding by {kind!r}; supported is 'linear'")
    return RopeScaling(kind="linear", factor=float(_need(meta, f"{arch}.rope.scaling.factor", path)))


def _need(meta: dict[str, Any], key: str, path: str) -> Any:
    if key not in meta:
        raise ModelError(f"{path} lacks the metadata {key!r}")
    return meta[key]
