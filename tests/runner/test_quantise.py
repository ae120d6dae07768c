"""Fewer bits, checked against formulas written out value by value."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from everystep.runner.quantise import to_bf16, to_f16, to_int4, to_int8

VALUES = st.floats(-100, 100, width=32)
WEIGHTS = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 3).map(lambda n: n * 32)), elements=VALUES)


def test_int8_of_a_row_worked_by_hand() -> None:
    weight = np.array([[-12.7, 0.0, 0.1, 0.26, 12.7], [2.0, -1.0, 0.5, 0.0, 0.1]], np.float32)
    quantised = to_int8(weight)
    np.testing.assert_allclose(quantised.scales, [[0.1], [2 / 127]], rtol=1e-6)
    assert quantised.values.tolist() == [[-127, 0, 1, 3, 127], [127, -64, 32, 0, 6]]  # 63.5 and 31.75; 6.35


@given(WEIGHTS)
def test_int8_is_never_further_off_than_half_a_step(weight: np.ndarray) -> None:
    quantised = to_int8(weight)
    restored = quantised.values.astype(np.float64) * quantised.scales
    assert (np.abs(restored - weight) <= quantised.scales * 0.501).all()
    assert np.abs(quantised.values.astype(int)).max(initial=0) <= 127


def test_a_row_of_zeros_stays_zeros_in_every_format() -> None:
    weight = np.zeros((2, 32), np.float32)
    assert not to_int8(weight).values.any()
    assert np.isfinite(to_int8(weight).scales).all()
    int4 = to_int4(weight)
    assert not int4.packed.any()
    assert not int4.zeros.any()
    assert int4.scales.all()


def test_int4_puts_the_first_of_two_values_into_the_low_half() -> None:
    weight = np.array([[0.0, 15.0, *[3.0] * 30]], np.float32)
    int4 = to_int4(weight)
    assert int4.packed[0] == 0xF0
    assert set(int4.packed[1:].tolist()) == {0x33}
    assert int4.scales.reshape(-1).tolist() == [1.0]


def test_int4_keeps_a_zero_point_between_two_integers() -> None:
    """Values -0.5, 0.5 … 14.5: a zero point rounded to an integer would move every one of them by half a step."""
    weight = (np.arange(32, dtype=np.float32) % 16 - 0.5).reshape(1, 32)
    assert np.array_equal(restored_int4(weight), weight)


@given(WEIGHTS)
def test_int4_is_never_much_further_off_than_half_a_step_of_its_group(weight: np.ndarray) -> None:
    groups = weight.astype(np.float64).reshape(len(weight), -1, 32)
    low, high = groups.min(axis=2, keepdims=True), groups.max(axis=2, keepdims=True)
    magnitude = np.maximum(np.abs(low), np.abs(high))
    step = np.maximum(np.maximum((high - low) / 15, magnitude / 256), 2.0**-14)
    assert (np.abs(restored_int4(weight).reshape(groups.shape) - groups) <= 0.7 * step).all()


def test_int4_of_a_narrow_group_far_from_zero_is_finite_and_near() -> None:
    weight = np.float32(0.5) + np.linspace(0, 1e-6, 32, dtype=np.float32).reshape(1, 32)
    np.testing.assert_allclose(restored_int4(weight), weight, atol=0.5 / 256)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 3e38))
def test_bf16_is_the_nearest_of_its_neighbours_and_the_even_one_between_two(value: float) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    below, above = bits >> 16, (bits >> 16) + 1
    rest = bits & 0xFFFF
    expected = below if rest < 0x8000 or (rest == 0x8000 and below % 2 == 0) else above
    assert to_bf16(np.array([[value]], np.float32))[0, 0] == expected


@pytest.mark.parametrize(("value", "expected"), [(1.0, 1.0), (1e6, 65504.0), (-1e6, -65504.0), (1e-9, 0.0)])
def test_f16_ends_at_its_largest_value_instead_of_infinity(value: float, expected: float) -> None:
    assert to_f16(np.array([[value]], np.float32))[0, 0] == expected


def restored_int4(weight: np.ndarray) -> np.ndarray:
    int4 = to_int4(weight)
    values = [half for byte in int4.packed.tolist() for half in (byte & 15, byte >> 4)]
    groups = np.array(values, np.float64).reshape(len(weight), -1, 32)
    return ((groups - int4.zeros) * int4.scales).reshape(weight.shape)
