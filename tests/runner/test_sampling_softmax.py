"""Weights and masses of logits in blocks."""

import numpy as np
import pytest

from everystep.runner.sampling.blocks import Blocks, block_width
from everystep.runner.sampling.exp_sums import ExpSums
from everystep.runner.sampling.softmax import Softmax

VOCAB = 1300
ROWS = np.arange(4)


@pytest.fixture(scope="module")
def softmax() -> Softmax:
    logits = np.random.default_rng(7).integers(-8, 9, (4, VOCAB)).astype(np.float32)
    temperatures = np.array([0.3, 1.0, 7.0, 1e-300])
    return Softmax.of(Blocks.of(logits, ROWS), temperatures, ExpSums(block_width(VOCAB), num_threads=1))


@pytest.mark.parametrize("pivot", [-np.inf, -3.0, 7.0, 8.0])
def test_a_blocks_mass_is_the_sum_of_its_weights_strictly_above_the_pivot(softmax: Softmax, pivot: float) -> None:
    """Drawing a block by its mass and then a token by its weight is a draw from the row only if they agree."""
    pivots = np.full(4, pivot, np.float32)
    masses = softmax.masses_above(ROWS, pivots)
    for block in range(softmax.blocks.num_blocks):
        values, weights = softmax.weights_above(ROWS, np.full(4, block), pivots)
        assert (weights[values <= pivots[:, None]] == 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), masses[:, block], rtol=3e-6, atol=1e-37)


def test_the_masses_of_all_and_of_all_above_minus_infinity_are_the_same_to_the_bit(softmax: Softmax) -> None:
    assert (softmax.masses() == softmax.masses_above(ROWS, np.full(4, -np.inf, np.float32))).all()


def test_the_likeliest_tokens_weigh_one_at_any_temperature(softmax: Softmax) -> None:
    below = np.nextafter(softmax.tops, np.float32(-np.inf))
    num_tied = (softmax.blocks.values == softmax.tops[:, None, None]).sum(axis=(1, 2))
    assert softmax.masses_above(ROWS, below).sum(axis=1).tolist() == num_tied.tolist()
