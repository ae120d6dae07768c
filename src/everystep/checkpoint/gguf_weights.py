"""The tensors of a GGUF file by Hugging Face name, dequantised on demand.

Owns the translation of ggml's names, quantisation types and rotary order.  Ignorant of the container's bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from everystep.architecture import Architecture
from everystep.checkpoint.file_bytes import read_bytes, widen_bfloat16
from everystep.checkpoint.gguf_file import GgufFile, TensorInfo
from everystep.errors import ModelError, UnsupportedModel

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "BF16": 30}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
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
ROPE_FACTORS = "rope_freqs.weight"
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
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
# The converter stores these with the two rotary halves interleaved, for ggml's architecture "llama" alone.
INTERLEAVED = ("self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.weight", "self_attn.k_proj.bias")


class GgufWeights:
    """Complete at construction but for the architecture, which is read from the shapes too: see ``interleave``."""

    def __init__(self, file: GgufFile) -> None:
        self._path = file.path
        self._infos = {hf_name(info.name): info for info in file.tensors.values()}
        self._num_heads: dict[str, int] = {}  # by canonical name, of the tensors stored interleaved
        for info in self._infos.values():
            _check(info, file)
        _check_apart(file)

    def names(self) -> Iterable[str]:
        return [name for name in self._infos if name != ROPE_FACTORS]  # a hyperparameter in a tensor's form

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: info.shape for name, info in self._infos.items()}

    def interleave(self, architecture: Architecture) -> None:
        """Have ``load`` bring the rotary rows of this file into Hugging Face's order."""
        for name in self._infos:
            if name.endswith(INTERLEAVED):
                is_q = ".q_proj." in name
                self._num_heads[name] = architecture.num_heads if is_q else architecture.num_kv_heads

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """A tensor that no graph here reads would be left out silently, and the answers be wrong."""
        unknown = set(self._infos) - {*known, ROPE_FACTORS}
        if unknown:
            raise UnsupportedModel(f"{self._path} has tensor {min(unknown)!r}, which isn't supported")

    def load(self, name: str) -> npt.NDArray[np.float32]:
        info = self._infos.get(name)
        if info is None:
            raise ModelError(f"{self._path} has no tensor {name!r}")
        data = read_bytes(self._path, info.offset, num_bytes(info))
        array = dequantise(data, TYPE_NAMES[info.type_number], info.shape)
        return split_rotary_pairs(array, self._num_heads[name]) if name in self._num_heads else array


def dequantise(data: npt.NDArray[np.uint8], kind: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """``[num_bytes]`` of ggml's blocks as float32 of ``shape``."""
    if kind == "F32":
        return data.view("<f4").astype(np.float32, copy=False).reshape(shape)
    if kind == "F16":
        return data.view("<f2").astype(np.float32).reshape(shape)
    if kind == "BF16":
        return widen_bfloat16(data).reshape(shape)
    from gguf.constants import GGMLQuantizationType  # a quarter of a second, paid where weights are read
    from gguf.quants import dequantize

    values = dequantize(data.reshape(*shape[:-1], -1), GGMLQuantizationType[kind])
    return np.ascontiguousarray(values, np.float32).reshape(shape)


def split_rotary_pairs(array: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """From ggml's interleaved rotary pairs (rows ``x0 y0 x1 y1 …`` of a head) to two halves (``x0 x1 … y0 y1 …``)."""
    pairs = array.reshape(num_heads, -1, 2, *array.shape[1:])  # [heads, head_dim / 2, 2, …]
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)


def hf_name(name: str) -> str:
    """``blk.3.attn_q.weight`` → ``model.layers.3.self_attn.q_proj.weight``; unknown names stay as they are."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in BLOCK_NAMES:
        return f"model.layers.{parts[1]}.{BLOCK_NAMES[parts[2]]}.{parts[3]}"
    return name


def num_bytes(info: TensorInfo) -> int:
    block, size = BLOCK_SIZES[TYPE_NAMES[info.type_number]]
    return math.prod(info.shape) // block * size


def _check(info: TensorInfo, file: GgufFile) -> None:
    if info.type_number not in TYPE_NAMES:
        raise UnsupportedModel(
            f"{file.path}: tensor {info.name!r:.200} has quantisation type {_type_name(info.type_number)}; "
            f"supported are {', '.join(TYPES)}"
        )
    block, _ = BLOCK_SIZES[TYPE_NAMES[info.type_number]]
    if not info.shape or min(info.shape) < 1 or info.shape[-1] % block:
        raise ModelError(
            f"{file.path} is corrupt: rows of tensor {info.name!r:.200} of shape {info.shape} "
            f"aren't whole blocks of {block}"
        )
    if info.offset + num_bytes(info) > file.num_bytes:
        raise ModelError(
            f"{file.path} is cut short: tensor {info.name!r:.200} ends beyond the file's {file.num_bytes} bytes"
        )


def _check_apart(file: GgufFile) -> None:
    """Two tensors in one place are a header that lies."""
    ordered = sorted(file.tensors.values(), key=lambda info: info.offset)
    for first, second in pairwise(ordered):
        if second.offset < first.offset + num_bytes(first):
            raise ModelError(f"{file.path} is corrupt: tensors {first.name!r:.200} and {second.name!r:.200} overlap")


def _type_name(number: int) -> str:
    from gguf.constants import GGMLQuantizationType

    return GGMLQuantizationType(number).name if number in set(GGMLQuantizationType) else str(number)
