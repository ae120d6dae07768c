"""A stretch of a file, read into fresh memory.

Owns the reading of raw array bytes.  Read, not mapped: a mapped page stays in the process's resident size after use,
and a file that shrinks meanwhile gives an error here, where a map would kill the process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.errors import ModelError


def read_bytes(path: Path, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
    """``[num_bytes]``.  Raises :class:`ModelError` if the file can't be read or ends before."""
    try:
        data = np.fromfile(path, np.uint8, num_bytes, offset=offset)
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror or error}") from error
    if data.size != num_bytes:
        raise ModelError(f"{path} is cut short: {data.size} of {num_bytes} bytes are left at byte {offset}")
    return data


def widen_bfloat16(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """bfloat16 is the upper half of a float32; NumPy has no type for it."""
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
