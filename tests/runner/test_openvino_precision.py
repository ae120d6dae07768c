"""What a precision's name means on which CPU."""

from __future__ import annotations

import pytest

from everystep.errors import ConfigError
from everystep.runner.precision import resolve_precision

OLD = frozenset({"avx2"})
NEW = frozenset({"avx2", "avx512f", "avx512_vnni", "avx512_bf16"})


@pytest.mark.parametrize("cpu", [OLD, NEW])
@pytest.mark.parametrize("deterministic", [False, True])
def test_f32_is_exact_everywhere(cpu: frozenset[str], deterministic: bool) -> None:
    precision = resolve_precision("f32", deterministic=deterministic, cpu=cpu)
    assert (precision.weights, precision.embedding, precision.arithmetic, precision.kv_cache) == ("f32",) * 4
    assert precision.dynamic_group == 0
    assert precision.invariance is not None
    assert not precision.has_static_decode


@pytest.mark.parametrize("cpu", [OLD, NEW])
@pytest.mark.parametrize("name", ["bf16", "int8", "int4", "auto"])
def test_deterministic_rounds_nothing_but_weights(cpu: frozenset[str], name: str) -> None:
    precision = resolve_precision(name, deterministic=True, cpu=cpu)
    assert (precision.arithmetic, precision.dynamic_group, precision.kv_cache) == ("f32", 0, "f32")
    assert precision.invariance is not None


def test_a_cpu_with_integer_products_rounds_activations_too() -> None:
    precision = resolve_precision("int8", deterministic=False, cpu=NEW)
    assert (precision.weights, precision.arithmetic, precision.dynamic_group, precision.kv_cache) == (
        "int8", "bf16", 64, "bf16"
    )  # fmt: skip
    assert precision.invariance is None


@pytest.mark.parametrize("missing", ["avx512_vnni", "avx512_bf16"])
def test_a_cpu_that_lacks_one_of_the_two_computes_in_f32(missing: str) -> None:
    precision = resolve_precision("int8", deterministic=False, cpu=NEW - {missing})
    assert (precision.arithmetic, precision.kv_cache) == ("f32", "f32")


def test_auto_says_what_it_became() -> None:
    assert resolve_precision("auto", deterministic=False, cpu=NEW).name != "auto"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="precision='int3' is none of auto, f32, bf16, int8, int4"):
        resolve_precision("int3", deterministic=False, cpu=OLD)
