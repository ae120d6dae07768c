"""The randomness behind a draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.runner.sampling.philox import philox4x32, uniforms

U64 = st.integers(0, 2**64 - 1)

# Known answers published with Random123 by the authors of Philox: counter, key, words.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def u64(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_published_answers(counter: list[int], key: list[int], words: list[int]) -> None:
    assert philox4x32(u64(*counter)[:, None], u64(*key)[:, None])[:, 0].tolist() == words


def test_philox_treats_each_column_by_itself() -> None:
    counters = np.stack([u64(*counter) for counter, _, _ in KNOWN], axis=1)
    keys = np.stack([u64(*key) for _, key, _ in KNOWN], axis=1)
    assert philox4x32(counters, keys).T.tolist() == [words for _, _, words in KNOWN]


@given(seed=U64, position=U64, attempt=st.integers(0, 1000), neighbours=st.lists(st.tuples(U64, U64), max_size=5))
def test_a_rows_numbers_do_not_depend_on_its_neighbours(
    seed: int, position: int, attempt: int, neighbours: list[tuple[int, int]]
) -> None:
    alone = uniforms(u64(seed), u64(position), attempt)[:, 0]
    rows = [*neighbours, (seed, position)]
    together = uniforms(u64(*(s for s, _ in rows)), u64(*(p for _, p in rows)), attempt)[:, -1]
    assert (alone == together).all()
    assert (alone >= 0).all()
    assert (alone <= 1 - 2**-52).all()


def test_seeds_positions_and_attempts_that_differ_in_one_bit_give_other_numbers() -> None:
    bits = [1 << k for k in range(64)]
    seeds, positions = u64(0, *bits, *[0] * 64), u64(0, *[0] * 64, *bits)
    numbers = [uniforms(seeds, positions, attempt) for attempt in range(4)]
    assert len(np.unique(np.concatenate(numbers, axis=1).round(12))) == 2 * 4 * 129


def test_numbers_are_uniform_and_uncorrelated_over_successive_positions() -> None:
    count = 40_000
    numbers = uniforms(np.full(count, 2**64 - 1, np.uint64), np.arange(count, dtype=np.uint64), 0)  # [2, count]
    for series in numbers:
        cells = np.bincount((series * 64).astype(int), minlength=64)
        chi_square = ((cells - count / 64) ** 2 / (count / 64)).sum()
        assert chi_square < 63 + 5 * np.sqrt(2 * 63)
        assert abs(np.corrcoef(series[:-1], series[1:])[0, 1]) < 5 / np.sqrt(count)
    assert abs(np.corrcoef(numbers)[0, 1]) < 5 / np.sqrt(count)
