"""The pieces that every family's graph is made of: inputs, paged attention, linear layers, norms, rotary embedding.

Owns the only uses of OpenVINO's private paged-attention operation.  Ignorant of families and of running.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops
from openvino.op import Constant

from everystep.architecture import Architecture, RopeScaling
from everystep.errors import EngineUnavailable
from everystep.runner.built_weights import BuiltWeights
from everystep.runner.quantise import INT4_GROUP

Node = Any  # OpenVINO's nodes carry no types of their own
PINNED_VERSION = "2026.4.1"


def check_library() -> None:
    """Raise :class:`EngineUnavailable` unless the installed OpenVINO is the one whose private operation is known."""
    installed = ov.__version__.split("-")[0]
    if installed != PINNED_VERSION or not hasattr(ov.op, "_PagedAttentionExtension"):
        raise EngineUnavailable(
            f"openvino {installed} is installed, but the paged graph is built for {PINNED_VERSION}: "
            f"pip install openvino=={PINNED_VERSION}"
        )


class GraphParts:
    """Makes nodes and remembers the graph's parameters.

    Tokens of all rows lie packed in one dimension ``T``; ``B`` rows; a row's blocks lie one after another.
    """

    def __init__(self, architecture: Architecture, weights: BuiltWeights) -> None:
        self.architecture = architecture
        self._weights = weights
        # One node for all that need the same numbers: a third fewer nodes, an eighth less time to compile.
        self.int64 = cache(int64)
        self._full = cache(_full)
        self._unused = _unused_inputs()
        self.parameters: list[Node] = []
        self.input_ids = self._parameter("input_ids", [-1], ov.Type.i64)  # [T]
        self.position_ids = self._parameter("position_ids", [-1], ov.Type.i64)  # [T]
        self._past_lens = self._parameter("past_lens", [-1], ov.Type.i32)  # [B]
        self._begins = self._parameter("subsequence_begins", [-1], ov.Type.i32)  # [B + 1]
        self._blocks = self._parameter("block_indices", [-1], ov.Type.i32)  # [sum of the rows' blocks]
        self._block_begins = self._parameter("block_indices_begins", [-1], ov.Type.i32)  # [B + 1]
        self._max_context = self._parameter("max_context_len", [], ov.Type.i32)
        self._sample_ids = self._parameter("sample_idx", [-1], ov.Type.i64)  # [rows that sample]

    # --- leaves ----------------------------------------------------------------------------------
    def array(self, name: str) -> npt.NDArray[np.float32]:
        return self._weights.get(f"{name}:f32")

    def has(self, name: str) -> bool:
        return f"{name}:f32" in self._weights

    def embedding(self, name: str, ids: Node, first_row: int = 0) -> Node:
        """Rows ``[T, hidden]`` of a table, f32 whatever the table's type."""
        kind = "f16" if f"{name}:f16" in self._weights else "f32"
        table = _constant(self._weights.get(f"{name}:{kind}")[first_row:])
        return ops.gather(ops.convert(table, ov.Type.f32) if kind == "f16" else table, ids, self.int64(0))

    def linear(self, x: Node, name: str, bias: str | None = None) -> Node:
        """``x @ W.T + b``: ``[T, in]`` → ``[T, out]``."""
        y = ops.matmul(x, self._linear_weight(name), False, True)
        return y if bias is None else ops.add(y, float32(self.array(bias).reshape(1, -1)))

    def sampled(self, x: Node) -> Node:
        """Only the tokens that a row samples from, ``[rows that sample, hidden]``: the head computes no others."""
        return ops.gather(x, self._sample_ids, self.int64(0))

    def model(self, hidden: Node, head: str) -> ov.Model:
        """The whole graph; its output is ``logits`` ``[rows that sample, vocab]``."""
        logits = self.linear(hidden, head)
        logits.output(0).set_names({"logits"})
        return ov.Model([ops.result(logits)], self.parameters, self.architecture.family)

    def _linear_weight(self, name: str) -> Node:
        get, prefix = self._weights.get, f"{name}:"
        if f"{prefix}int8" in self._weights:
            whole = ops.convert(_constant(get(f"{prefix}int8")), ov.Type.f32)
            return ops.multiply(whole, _constant(get(f"{prefix}int8.scales")))
        if f"{prefix}int4" in self._weights:
            return self._int4_weight(prefix)
        for kind, element in (("bf16", ov.Type.bf16), ("f16", ov.Type.f16)):
            if prefix + kind in self._weights:
                return ops.convert(_constant(get(prefix + kind), element), ov.Type.f32)
        return _constant(get(f"{prefix}f32"))

    def _int4_weight(self, prefix: str) -> Node:
        scales = self._weights.get(f"{prefix}int4.scales")  # [out, groups, 1]
        num_out, num_groups, _ = scales.shape
        packed = self._weights.get(f"{prefix}int4")
        grouped = [num_out, num_groups, INT4_GROUP]
        values = ops.convert(Constant(ov.Tensor(packed, grouped, ov.Type.u4)), ov.Type.f16)
        shifted = ops.subtract(values, _constant(self._weights.get(f"{prefix}int4.zeros")))
        flat = ops.reshape(
            ops.multiply(shifted, _constant(scales)), self.int64(num_out, num_groups * INT4_GROUP), False
        )
        return ops.convert(flat, ov.Type.f32)

    # --- norms and rotary embedding --------------------------------------------------------------
    def rms_norm(self, x: Node, name: str) -> Node:
        """Root mean square over the last dimension."""
        rank = len(x.get_output_partial_shape(0))
        squares = ops.reduce_mean(ops.power(x, self._full(rank, 2.0)), self.int64(-1), True)
        root = ops.sqrt(ops.add(squares, self._full(rank, self.architecture.norm_eps)))
        weight = self.array(name).reshape([1] * (rank - 1) + [-1])
        return ops.multiply(ops.multiply(x, ops.divide(self._full(rank, 1.0), root)), float32(weight))

    def layer_norm(self, x: Node, name: str) -> Node:
        """Mean and variance over the last dimension of ``[T, hidden]``, scaled and shifted."""
        normal = ops.mvn(x, self.int64(-1), True, self.architecture.norm_eps, "inside_sqrt")
        scaled = ops.multiply(normal, float32(self.array(f"{name}.weight").reshape(1, -1)))
        return ops.add(scaled, float32(self.array(f"{name}.bias").reshape(1, -1)))

    def rotary(self) -> tuple[Node, Node]:
        """Cosine and sine for every token, ``[T, 1, 1, head_dim]`` each."""
        factors = self.array("rope_freqs.weight") if self.has("rope_freqs.weight") else None
        frequencies = float32(_inverse_frequencies(self.architecture, factors).reshape(1, -1))
        angles = ops.multiply(ops.unsqueeze(ops.convert(self.position_ids, ov.Type.f32), self.int64(1)), frequencies)
        both = ops.unsqueeze(ops.concat([angles, angles], 1), self.int64(1))  # [T, 1, head_dim]
        axis = ops.constant(np.array(1, np.int64))
        return ops.unsqueeze(ops.cos(both), axis), ops.unsqueeze(ops.sin(both), axis)

    def rotate(self, x: Node, num_heads: int, rotary: tuple[Node, Node]) -> Node:
        """Rotary embedding of ``[T, heads * head_dim]`` in Hugging Face's order of halves.

        OpenVINO fuses this chain into one kernel only if the Concat's axis is literally −1.
        """
        half, dim = self.architecture.head_dim // 2, self.architecture.head_dim
        heads = ops.transpose(ops.reshape(x, self.int64(0, 1, num_heads, dim), True), self.int64(0, 2, 1, 3))
        low = ops.slice(heads, self.int64(0), self.int64(half), self.int64(1), self.int64(3))
        high = ops.slice(heads, self.int64(half), self.int64(2**63 - 1), self.int64(1), self.int64(3))
        turned = ops.concat([ops.multiply(high, self._full(4, -1.0)), low], -1)
        rotated = ops.add(ops.multiply(heads, rotary[0]), ops.multiply(turned, rotary[1]))
        return ops.reshape(ops.transpose(rotated, self.int64(0, 2, 1, 3)), self.int64(0, -1), True)

    # --- attention -------------------------------------------------------------------------------
    def attention(self, layer: int, q: Node, k: Node, v: Node) -> Node:
        """Write this step's keys and values into the paged cache and attend: ``[T, heads * head_dim]``.

        The operation takes 28 inputs by position; those that this server has no use for are given empty.
        """
        a = self.architecture
        key_cache = self._parameter(f"key_cache.{layer}", [-1] * 4, ov.Type.dynamic)
        value_cache = self._parameter(f"value_cache.{layer}", [-1] * 4, ov.Type.dynamic)
        inputs = [q, k, v, key_cache, value_cache, self._past_lens, self._begins, self._blocks, self._block_begins]
        inputs += [float32(np.array(a.head_dim**-0.5)), int32(a.sliding_window or 0), _empty(ov.Type.f32)]
        inputs += [self._max_context, *self._unused]
        node = ov.op._PagedAttentionExtension([getattr(i, "output", lambda _, i=i: i)(0) for i in inputs])
        info = node.get_rt_info()  # where the compiler looks for the layout of heads
        for kv_cache, side in ((key_cache, "k"), (value_cache, "v")):
            kv_cache.get_rt_info()["num_heads"] = a.num_kv_heads
            info[f"num_{side}_heads"], info[f"{side}_head_size"] = a.num_kv_heads, a.head_dim
        return node.output(0)

    def _parameter(self, name: str, shape: Sequence[int], kind: ov.Type) -> Node:
        parameter = ops.parameter(list(shape), kind, name=name)
        parameter.output(0).set_names({name})
        self.parameters.append(parameter)
        return parameter


def _unused_inputs() -> list[Node]:
    """Inputs 13 to 27: eviction, rotation, sparse attention, sinks and tree drafts, each turned off."""
    i32, f32 = ov.Type.i32, ov.Type.f32
    return [
        _empty(i32),  # score_aggregation_window
        _empty(i32),  # rotated_block_indices
        _empty(i32),  # rotation_deltas
        _empty(f32),  # rotation_trig_lut
        _empty(f32),  # xattention_threshold
        int32(0),  # xattention_block_size
        int32(0),  # xattention_stride
        _empty(f32, 4),  # sinks
        int32(0),  # adaptive_rkv_start_size
        _empty(i32),  # adaptive_rkv_evictable_sizes
        _empty(i32),  # adaptive_rkv_diversity_block_set_indices
        _empty(i32),  # adaptive_rkv_diversity_block_set_indices_begins
        _empty(i32),  # token_type_ids
        _empty(ov.Type.u8),  # qq_bias
        _empty(i32),  # qq_bias_begins
    ]


def _inverse_frequencies(a: Architecture, factors: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
    """Radians a position for each pair of dimensions, ``[head_dim / 2]`` (Su et al., 2021; Llama 3's scaling)."""
    exponents = np.arange(0, a.head_dim, 2, dtype=np.float64) / a.head_dim
    frequencies = 1.0 / a.rope_theta**exponents
    if factors is not None:
        frequencies = frequencies / factors
    if a.rope_scaling is not None:
        frequencies = _scaled(frequencies, a.rope_scaling)
    return frequencies.astype(np.float32)


def _scaled(frequencies: npt.NDArray[np.float64], scaling: RopeScaling) -> npt.NDArray[np.float64]:
    """Linear: all slowed alike.  Llama 3: long waves slowed, short ones kept, a smooth passage between."""
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((scaling.original_max_position / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def int64(*values: int) -> Node:
    return ops.constant(np.array(values, np.int64))


def int32(value: int) -> Node:
    return ops.constant(np.array(value, np.int32))


def float32(array: npt.NDArray[Any]) -> Node:
    return ops.constant(np.asarray(array, np.float32))


def _full(rank: int, value: float) -> Node:
    """A number that broadcasts against ``rank`` dimensions."""
    return float32(np.full([1] * rank, value))


def _constant(array: npt.NDArray[Any], kind: ov.Type | None = None) -> Node:
    """A constant on the array's own memory; the caller keeps the array alive."""
    kind = kind or ov.Type(array.dtype)
    return Constant(ov.Tensor(array, list(array.shape), kind))


def _empty(kind: ov.Type, num_dims: int = 1) -> Node:
    return Constant(ov.Tensor(kind, [0] * num_dims))
