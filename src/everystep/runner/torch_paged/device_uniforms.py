"""The numbers behind the draws of a step, for every attempt that the device may need, computed on the host.

Owns nothing random: they are :func:`everystep.runner.sampling.philox.uniforms` of (seed, position, attempt), so that a
CPU and a GPU draw with the same ones.  On the host since they depend on no logit: they are ready before the forward
pass ends, and ten rounds of Philox would be a hundred small kernels on a GPU.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.philox import uniforms


def attempts_of(
    seeds: NDArray[np.uint64], positions: NDArray[np.uint64], first: int, num_attempts: int
) -> NDArray[np.float64]:
    """``[attempts, 2, rows]``: the two numbers in [0, 1) of each row for attempts ``first``, ``first + 1``, …"""
    return np.stack([uniforms(seeds, positions, attempt) for attempt in range(first, first + num_attempts)])
