"""The safetensors container: names, types and places of arrays, read through a map of the file.

Owns the layout (an 8-byte length, a JSON header, raw data).  Reads BF16, which NumPy has no type for.  Never executes
anything: the format holds no code.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.errors import ModelError

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
MAX_HEADER_BYTES = 100 * 2**20


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Where an array lies; ``offset`` counts from the file's begin."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFile:
    """One file.  Raises :class:`ModelError` for what is cut short, corrupt, or of a type that isn't read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.arrays = self._read_header()
        except (ValueError, struct.error, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path} is corrupt or cut short within its header") from error

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy."""
        info = self.arrays[name]
        if info.dtype not in ITEM_BYTES:
            raise ModelError(f"{self.path}: {name!r} is {info.dtype}; supported are {', '.join(ITEM_BYTES)}")
        count = math.prod(info.shape)
        if info.dtype == "BF16":
            halves = np.frombuffer(self._data, np.uint16, count, info.offset)
            return (halves.astype(np.uint32) << 16).view(np.float32).reshape(info.shape)
        kind = np.float32 if info.dtype == "F32" else np.float16
        return np.array(np.frombuffer(self._data, kind, count, info.offset), np.float32).reshape(info.shape)

    def _read_header(self) -> dict[str, ArrayInfo]:
        (length,) = struct.unpack_from("<Q", self._data)
        if length > min(MAX_HEADER_BYTES, len(self._data) - 8):
            raise ValueError("header beyond the file")
        header = json.loads(self._data[8 : 8 + length])
        header.pop("__metadata__", None)
        return {name: self._info(name, entry, 8 + length) for name, entry in header.items()}

    def _info(self, name: str, entry: dict[str, object], data_start: int) -> ArrayInfo:
        shape = tuple(int(size) for size in entry["shape"])  # type: ignore[attr-defined]
        begin, end = entry["data_offsets"]  # type: ignore[misc]
        dtype = str(entry["dtype"])
        if data_start + end > len(self._data):
            raise ModelError(f"{self.path} is cut short: {name!r} ends beyond the file's {len(self._data)} bytes")
        if dtype in ITEM_BYTES and end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
            raise ModelError(f"{self.path} is corrupt: {name!r} has {end - begin} bytes for shape {shape} of {dtype}")
        return ArrayInfo(dtype, shape, data_start + begin)
