"""The precisions one can ask for, and what each means to the compiler.

Owns the table and the choice of ``auto``.  Ignorant of graphs.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from everystep.errors import ConfigError

WeightFormat = Literal["f32", "f16", "bf16", "int8", "int4"]
LOW_PRECISION_FEATURES = frozenset({"avx512_vnni", "avx512_bf16"})  # as /proc/cpuinfo calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are kept, how products are computed, how keys and values are kept."""

    name: str
    weights: WeightFormat
    embedding: Literal["f32", "f16"]
    arithmetic: Literal["f32", "bf16"]
    dynamic_group: int  # activations are rounded to int8 in groups of so many; 0 leaves them as they are
    kv_cache: Literal["f32", "bf16", "u8"]
    has_static_decode: bool  # a second graph, of fixed shapes, for one token of one row
    is_batch_invariant: bool  # a row's logits are the same to the bit, alone or in company


def _f32_arithmetic(name: str, weights: WeightFormat, embedding: Literal["f32", "f16"] = "f16") -> Precision:
    """Nothing but the weights in fewer bits: products, keys and values stay float32."""
    return Precision(
        name=name,
        weights=weights,
        embedding=embedding,
        arithmetic="f32",
        dynamic_group=0,
        kv_cache="f32",
        has_static_decode=False,
        is_batch_invariant=True,
    )


def _bf16_arithmetic(name: str, weights: WeightFormat, dynamic_group: int) -> Precision:
    return Precision(
        name=name,
        weights=weights,
        embedding="f16",
        arithmetic="bf16",
        dynamic_group=dynamic_group,
        kv_cache="bf16",
        has_static_decode=True,
        is_batch_invariant=False,
    )


EXACT = _f32_arithmetic("f32", "f32", "f32")
PLAIN_CPU = {
    "f32": EXACT,
    "bf16": _f32_arithmetic("bf16", "bf16"),
    "int8": _f32_arithmetic("int8", "int8"),
    "int4": _f32_arithmetic("int4", "int4"),
}
LOW_PRECISION_CPU = {
    "f32": EXACT,
    "bf16": _bf16_arithmetic("bf16", "bf16", 0),
    "int8": _bf16_arithmetic("int8", "int8", 64),
    "int4": _bf16_arithmetic("int4", "int4", 64),
}


def resolve_precision(name: str, *, deterministic: bool, cpu: Set[str]) -> Precision:
    """What ``--precision`` and ``--deterministic`` mean on a CPU with the features ``cpu``."""
    table = LOW_PRECISION_CPU if cpu >= LOW_PRECISION_FEATURES and not deterministic else PLAIN_CPU
    if name == "auto":
        return table["int8"]
    if name not in table:
        raise ConfigError(f"precision={name!r} is none of auto, {', '.join(table)}", param="precision")
    return table[name]
