"""The precisions one can ask for, and what each means to the compiler.

Owns the table and the choice of ``auto``.  Ignorant of graphs.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Literal

from everystep.errors import ConfigError

WeightFormat = Literal["f32", "f16", "bf16", "int8", "int4"]
LOW_PRECISION_FEATURES = frozenset({"avx512_vnni", "avx512_bf16"})  # as /proc/cpuinfo calls them


# The largest pass for which the matrix products of every CPU that was measured keep one order of summation: on one
# with AVX2 they change it between 80 and 88 tokens.
MAX_INVARIANT_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariance:
    """Bounds on a pass within which a token's logits don't depend on who else is in it."""

    min_tokens: int
    max_tokens: int = MAX_INVARIANT_TOKENS


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
    invariance: Invariance | None = None  # where a token's logits are to be the same to the bit in any company


def _f32_arithmetic(
    name: str,
    weights: WeightFormat,
    embedding: Literal["f32", "f16"] = "f16",
    invariance: Invariance | None = None,
) -> Precision:
    """Nothing but the weights in fewer bits: products, keys and values stay float32."""
    return Precision(
        name=name,
        weights=weights,
        embedding=embedding,
        arithmetic="f32",
        dynamic_group=0,
        kv_cache="f32",
        has_static_decode=invariance is None,
        invariance=invariance,
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
    )


EXACT = _f32_arithmetic("f32", "f32", "f32", Invariance(min_tokens=1))
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
    name = "int8" if name == "auto" else name
    if name not in table:
        raise ConfigError(f"precision={name!r} is none of auto, {', '.join(table)}", param="precision")
    precision = table[name]
    if deterministic and precision.invariance is None:
        # products of dequantised weights with a single token take a way of their own
        return replace(precision, invariance=Invariance(min_tokens=2), has_static_decode=False)
    return precision
