"""Uniform numbers as a pure function of (seed, position, attempt).

Owns Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), vectorised over rows.
Ignorant of what is drawn with it.  There is no state: neighbours, preemption and replays can't change a draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = np.arange(10, dtype=np.uint64)[:, None, None]  # [10, 1, 1]
MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)  # [2, 1]
KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)  # [2, 1]
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)
MANTISSA_SHIFT = np.uint64(12)
# 52 bits, not 53: 1 - 2**-52 times any positive double rounds to less than it, so an inverse CDF never overruns.
UNIT = 2.0**-52


def philox4x32(counters: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Four random 32-bit words for each column: ``counters`` ``[4, n]`` and ``keys`` ``[2, n]`` hold 32-bit words."""
    multiplied, mixed = counters[0::2], counters[1::2]  # [2, n] each
    for round_keys in (keys + ROUNDS * KEY_STEPS) & LOW:  # [2, n]
        products = multiplied * MULTIPLIERS  # of 32-bit words: no overflow in 64 bits
        multiplied, mixed = (products >> WORD)[::-1] ^ mixed ^ round_keys, (products & LOW)[::-1]
    words = np.empty_like(counters)
    words[0::2], words[1::2] = multiplied, mixed
    return words


def uniforms(seeds: NDArray[np.uint64], positions: NDArray[np.uint64], attempt: int) -> NDArray[np.float64]:
    """Two independent numbers in [0, 1 - 2**-52] for each row: ``[2, rows]``.

    ``attempt`` numbers the draws for one position, so that a redraw is as reproducible as the first draw.
    """
    attempts = np.full_like(positions, attempt)
    counters = np.stack([positions & LOW, positions >> WORD, attempts, np.zeros_like(positions)])  # [4, rows]
    words = philox4x32(counters, np.stack([seeds & LOW, seeds >> WORD]))
    mantissas = ((words[0::2] << WORD) | words[1::2]) >> MANTISSA_SHIFT  # [2, rows]
    return mantissas.astype(np.float64) * UNIT
