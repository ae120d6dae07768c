"""Finding a row's largest logits without looking at most of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks, block_width

# Vocabularies of one padded block, of whole blocks of each width, and of several blocks with a padded end.
VOCABS = [1, 11, 256, 320, 384, 1024, 1300]


def logits_of(vocab: int, seed: int, *, with_ties: bool = False) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-4, 5, (3, vocab)) if with_ties else rng.standard_normal((3, vocab))
    return logits.astype(np.float32)


@pytest.mark.parametrize(("vocab", "width"), [(49_152, 256), (151_936, 128), (128_256, 256), (320, 64), (50_257, 256)])
def test_the_block_width_divides_the_vocabulary_where_one_does(vocab: int, width: int) -> None:
    assert block_width(vocab) == width


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("indices", [[0, 1, 2], [1], [0, 2]])
def test_blocks_hold_the_chosen_rows_then_minus_infinity(vocab: int, indices: list[int]) -> None:
    logits = logits_of(vocab, 0)
    blocks = Blocks.of(logits, np.array(indices))
    rows = blocks.values.reshape(len(indices), -1)
    assert (rows[:, :vocab] == logits[indices]).all()
    assert (rows[:, vocab:] == -np.inf).all()
    assert (blocks.row_maxima() == logits[indices].max(axis=1)).all()


def test_whole_rows_are_seen_in_place() -> None:
    logits = logits_of(1024, 0)
    assert np.shares_memory(Blocks.of(logits, np.arange(3)).values, logits)
    assert np.shares_memory(Blocks.of(logits, np.array([1, 2])).values, logits)


def test_rows_of_a_wider_array_are_copied_right() -> None:
    wide = logits_of(1100, 0)
    assert (Blocks.of(wide[:, :1024], np.arange(3)).values.reshape(3, -1) == wide[:, :1024]).all()


@settings(max_examples=80, deadline=None)
@given(vocab=st.sampled_from(VOCABS), seed=st.integers(0, 99), with_ties=st.booleans(), data=st.data())
def test_the_kth_largest_is_that_of_a_sort(vocab: int, seed: int, with_ties: bool, data: st.DataObject) -> None:
    logits = logits_of(vocab, seed, with_ties=with_ties)
    ks = np.array(data.draw(st.lists(st.integers(1, vocab), min_size=3, max_size=3)))
    found = Blocks.of(logits, np.arange(3)).kth_largest(np.arange(3), ks)
    assert found.tolist() == [np.sort(row)[::-1][k - 1] for row, k in zip(logits, ks, strict=True)]


@settings(max_examples=80, deadline=None)
@given(vocab=st.sampled_from(VOCABS), seed=st.integers(0, 99), with_ties=st.booleans(), data=st.data())
def test_leaders_are_the_first_of_a_stable_sort(vocab: int, seed: int, with_ties: bool, data: st.DataObject) -> None:
    logits = logits_of(vocab, seed, with_ties=with_ties)
    ks = data.draw(st.lists(st.integers(1, min(vocab, 20)), min_size=2, max_size=2))
    leaders = Blocks.of(logits, np.arange(3)).leaders(np.array([0, 2]), np.array(ks))
    for start, row, k in zip(leaders.starts, logits[[0, 2]], ks, strict=True):
        expected = np.argsort(-row, kind="stable")[:k]
        assert leaders.token_ids[start : start + k].tolist() == expected.tolist()
        assert leaders.values[start : start + k].tolist() == row[expected].tolist()


@pytest.mark.parametrize("place", [0, 7, 255, 256, 1299])
def test_a_nan_anywhere_shows_in_its_rows_maximum(place: int) -> None:
    logits = logits_of(1300, 0)
    logits[1, place] = np.nan
    assert np.isnan(Blocks.of(logits, np.arange(3)).row_maxima()).tolist() == [False, True, False]
