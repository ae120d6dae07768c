"""The precisions one can ask for, and what each means to the compiler.

Owns the table and the choice of ``auto``.  Ignorant of graphs.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from everystep.errors import ConfigError
from everystep.runner.quantise import WeightFormat

KvFormat = Literal["f32", "bf16", "u8"]
FEATURES_FOR_INT8_PRODUCTS = frozenset({"avx512_vnni", "avx512_bf16"})  # as /proc/cpuinfo calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are kept, how products are computed, how keys and values are kept."""

    name: str
    weights: WeightFormat
    embedding: WeightFormat
    compute: Literal["f32", "bf16"]
    activation_group: int  # activations are rounded to int8 in groups of so many; 0 leaves them as they are
    kv: KvFormat
    is_batch_invariant: bool  # a row's logits are the same to the bit, alone or in company

    def compile_properties(self) -> dict[str, object]:
        return {
            "INFERENCE_PRECISION_HINT": self.compute,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": self.activation_group,
            "KV_CACHE_PRECISION": self.kv,
        }


def _plain(name: str, weights: WeightFormat, embedding: WeightFormat) -> Precision:
    """Nothing but the weights in fewer bits: products, keys and values stay float32."""
    return Precision(
        name=name,
        weights=weights,
        embedding=embedding,
        compute="f32",
        activation_group=0,
        kv="f32",
        is_batch_invariant=True,
    )


EXACT = _plain("f32", "f32", "f32")
WEIGHT_ONLY = {
    "f32": EXACT,
    "bf16": _plain("bf16", "bf16", "f16"),
    "int8": _plain("int8", "int8", "f16"),
    "int4": _plain("int4", "int4", "f16"),
}


def _fast(name: str, weights: WeightFormat, activation_group: int) -> Precision:
    return Precision(
        name=name,
        weights=weights,
        embedding="f16",
        compute="bf16",
        activation_group=activation_group,
        kv="bf16",
        is_batch_invariant=False,
    )


LOW_PRECISION_PRODUCTS = {
    "f32": EXACT,
    "bf16": _fast("bf16", "bf16", 0),
    "int8": _fast("int8", "int8", 64),
    "int4": _fast("int4", "int4", 64),
}


def choose_precision(name: str, *, deterministic: bool, cpu_features: Set[str]) -> Precision:
    """What ``--precision`` and ``--deterministic`` mean on a CPU with these features."""
    table = LOW_PRECISION_PRODUCTS if cpu_features >= FEATURES_FOR_INT8_PRODUCTS and not deterministic else WEIGHT_ONLY
    if name == "auto":
        return table["int8"]
    if name not in table:
        raise ConfigError(f"precision={name!r} is none of auto, {', '.join(table)}", param="precision")
    return table[name]
