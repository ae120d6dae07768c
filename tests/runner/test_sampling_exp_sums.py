"""The heavy part of a draw: sums of exponentials in OpenVINO."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from everystep.runner.sampling.exp_sums import ExpSums

WIDTH = 256
NUM_BLOCKS = 150


@pytest.fixture(scope="module")
def exp_sums() -> ExpSums:
    return ExpSums(WIDTH, num_threads=2)


@pytest.fixture
def inputs() -> tuple[NDArray[np.float32], ...]:
    """Values ``[blocks, width]``, tops, scales and pivots ``[blocks]``."""
    rng = np.random.default_rng(0)
    values = rng.normal(0, 4, (NUM_BLOCKS, WIDTH)).astype(np.float32)
    values[5, 3:90] = -np.inf
    scales = rng.uniform(0.01, 5, NUM_BLOCKS).astype(np.float32)
    pivots = rng.normal(2, 3, NUM_BLOCKS).astype(np.float32)
    return values, values.max(axis=1), scales, pivots


def test_sums_agree_with_float64(exp_sums: ExpSums, inputs: tuple[NDArray[np.float32], ...]) -> None:
    values, tops, scales, pivots = inputs
    exact = np.exp((values.astype(np.float64) - tops[:, None]) * scales[:, None])
    np.testing.assert_allclose(exp_sums.whole(values, tops, scales), exact.sum(axis=1), rtol=3e-6)
    above = np.where(values > pivots[:, None], exact, 0).sum(axis=1)
    np.testing.assert_allclose(exp_sums.above(values, tops, scales, pivots), above, rtol=3e-6, atol=1e-37)


def test_a_value_at_the_pivot_does_not_count(exp_sums: ExpSums) -> None:
    values = np.tile(np.array([1.0, 2.0], np.float32), (1, WIDTH // 2))
    one = np.ones(1, np.float32)
    assert exp_sums.above(values, one * 2, one, one).tolist() == [WIDTH / 2]
    assert exp_sums.above(values, one * 2, one, one * 2).tolist() == [0]


@pytest.mark.parametrize("parts", [[1, 149], [7, 64, 79], [50, 50, 50]])
def test_a_blocks_sum_is_the_same_to_the_bit_in_any_company(
    exp_sums: ExpSums, inputs: tuple[NDArray[np.float32], ...], parts: list[int]
) -> None:
    values, tops, scales, pivots = inputs
    borders = np.cumsum([0, *parts])
    slices = [slice(start, end) for start, end in pairwise(borders.tolist())]
    whole = [exp_sums.whole(values[s], tops[s], scales[s]) for s in slices]
    assert (np.concatenate(whole) == exp_sums.whole(values, tops, scales)).all()
    above = [exp_sums.above(values[s], tops[s], scales[s], pivots[s]) for s in slices]
    assert (np.concatenate(above) == exp_sums.above(values, tops, scales, pivots)).all()


def test_without_a_pivot_both_models_agree_to_the_bit(
    exp_sums: ExpSums, inputs: tuple[NDArray[np.float32], ...]
) -> None:
    """Which one a row gets depends on its neighbours, so its sums mustn't."""
    values, tops, scales, _ = inputs
    never = np.full(NUM_BLOCKS, -np.inf, np.float32)
    assert (exp_sums.whole(values, tops, scales) == exp_sums.above(values, tops, scales, never)).all()


def test_more_threads_change_no_bit(exp_sums: ExpSums, inputs: tuple[NDArray[np.float32], ...]) -> None:
    values, tops, scales, _ = inputs
    assert (exp_sums.whole(values, tops, scales) == ExpSums(WIDTH, num_threads=1).whole(values, tops, scales)).all()


@pytest.mark.parametrize("value", [-88.0, -104.0, -1e30, -np.inf])
def test_exponentials_below_normal_numbers_count_as_nothing(exp_sums: ExpSums, value: float) -> None:
    """NumPy gives denormals where this gives 0, never the reverse: a block of positive mass has a token to draw."""
    values, one = np.full((1, WIDTH), value, np.float32), np.ones(1, np.float32)
    assert exp_sums.whole(values, one * 0, one).tolist() == [0]
