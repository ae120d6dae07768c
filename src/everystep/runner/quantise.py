"""Weights in fewer bits.

Owns the rounding rules, per row or per group.  Pure NumPy.  Ignorant of graphs and files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
INT4_GROUP = 32  # GGUF's Q4_1 has the same, so its values survive


@dataclass(frozen=True, slots=True)
class Int8:
    """``values * scales`` approximates the weight."""

    values: npt.NDArray[np.int8]  # [out, in]
    scales: F32  # [out, 1]


@dataclass(frozen=True, slots=True)
class Int4:
    """``(values - zeros) * scales`` approximates the weight; two values a byte, the first in the low half."""

    packed: npt.NDArray[np.uint8]  # [out * in / 2]
    scales: npt.NDArray[np.float16]  # [out, in / 32, 1]
    zeros: npt.NDArray[np.float16]  # [out, in / 32, 1]; not rounded to integers: Q4_1's minima are floats


def to_int8(weight: F32) -> Int8:
    """Symmetric, a scale for each output channel: the largest magnitude becomes 127."""
    scales = (np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float32)  # [out, 1]
    scales[scales == 0] = 1
    return Int8(np.rint(weight / scales).astype(np.int8), scales)


def to_int4(weight: F32) -> Int4:
    """Asymmetric, a scale and a floating-point zero for each group of 32 inputs.

    The scale is at least 1/256 of the group's largest magnitude, so that the zero of a narrow group far from zero
    still fits a half with its fraction, and is a normal half, so that it is never 0.
    """
    num_out, num_in = weight.shape
    groups = weight.reshape(num_out, num_in // INT4_GROUP, INT4_GROUP)  # [out, groups, 32]
    low, high = groups.min(axis=2, keepdims=True), groups.max(axis=2, keepdims=True)  # [out, groups, 1]
    least = np.maximum(np.maximum(-low, high) / np.float32(256), np.finfo(np.float16).smallest_normal)
    scales = to_f16(np.maximum((high - low) / np.float32(15), least))
    zeros = to_f16(-low / scales)
    values = np.clip(np.rint(groups / scales + zeros), 0, 15).astype(np.uint8).reshape(-1)
    return Int4(values[0::2] | (values[1::2] << 4), scales, zeros)


def to_f16(weight: F32) -> npt.NDArray[np.float16]:
    """Nearest half; beyond its range the largest half, since an infinity would poison a whole row."""
    limit = np.finfo(np.float16).max
    return np.clip(weight, -limit, limit).astype(np.float16)


def to_bf16(weight: F32) -> npt.NDArray[np.uint16]:
    """Upper halves of f32, rounded to nearest even; NumPy has no such type, so the bits come as uint16."""
    bits = np.ascontiguousarray(weight).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
