"""The safetensors container: names, types and places of arrays.

Owns the layout (an 8-byte length, a JSON header, raw data).  Reads BF16, which NumPy has no type for.  Never executes
anything: the format holds no code.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everystep.checkpoint.file_bytes import read_bytes, widen_bfloat16
from everystep.errors import ModelError, UnsupportedModel

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # the format's own bound


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
        self._num_bytes = path.stat().st_size
        header_bytes = self._header_bytes()
        self.header = self._header(header_bytes)
        self.data_start = LENGTH_BYTES + header_bytes
        entries = {name: entry for name, entry in self.header.items() if name != "__metadata__"}
        self.arrays = {name: self._info(name, entry, self.data_start) for name, entry in entries.items()}
        self._check_apart(entries)

    def check_readable(self, name: str) -> None:
        """Raise :class:`ModelError` for an element type that isn't read."""
        dtype = self.arrays[name].dtype
        if dtype not in ITEM_BYTES:
            raise UnsupportedModel(f"{self.path}: {name!r:.200} is {dtype:.20}; supported are {', '.join(ITEM_BYTES)}")

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy."""
        self.check_readable(name)
        info = self.arrays[name]
        data = read_bytes(self.path, info.offset, math.prod(info.shape) * ITEM_BYTES[info.dtype])
        if info.dtype == "BF16":
            return widen_bfloat16(data).reshape(info.shape)
        kind = "<f4" if info.dtype == "F32" else "<f2"
        return data.view(kind).astype(np.float32, copy=False).reshape(info.shape)

    def _header_bytes(self) -> int:
        if self._num_bytes < LENGTH_BYTES:
            raise ModelError(f"{self.path} is cut short: {self._num_bytes} bytes are no safetensors file")
        length = int(read_bytes(self.path, 0, LENGTH_BYTES).view("<u8")[0])
        if length > MAX_HEADER_BYTES:
            raise ModelError(f"{self.path} is corrupt or no safetensors file: it claims a header of {length} bytes")
        return length

    def _header(self, length: int) -> dict[str, Any]:
        text = read_bytes(self.path, LENGTH_BYTES, length).tobytes()
        try:
            header = json.loads(text, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.path} is corrupt: its header is no JSON ({error})") from error
        if not isinstance(header, dict):
            raise ModelError(f"{self.path} is corrupt: its header is no JSON object")
        return header

    def _info(self, name: str, entry: Any, data_start: int) -> ArrayInfo:
        try:
            begin, end = map(_whole, entry["data_offsets"])
            shape = tuple(map(_whole, entry["shape"]))
            dtype = str(entry["dtype"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self.path} is corrupt: the header's entry of {name!r:.200} is malformed") from error
        if data_start + end > self._num_bytes:
            raise ModelError(f"{self.path} is cut short: {name!r:.200} ends beyond the file's {self._num_bytes} bytes")
        num_bytes = math.prod(shape) * ITEM_BYTES[dtype] if dtype in ITEM_BYTES else end - begin
        if begin < 0 or min(shape, default=0) < 0 or end - begin != num_bytes:
            raise ModelError(
                f"{self.path} is corrupt: {name!r:.200} has {end - begin} bytes for shape {shape} of {dtype:.20}"
            )
        return ArrayInfo(dtype, shape, data_start + begin)

    def _check_apart(self, entries: dict[str, Any]) -> None:
        """Each byte is one array's: the format has it so, and two arrays in one place are a header that lies."""
        places = sorted((*entry["data_offsets"], name) for name, entry in entries.items())
        for (_, end, first), (begin, _, second) in pairwise(places):
            if begin < end:
                raise ModelError(f"{self.path} is corrupt: {first!r:.200} and {second!r:.200} overlap")


def _whole(value: Any) -> int:
    """No text, no fraction, no ``true``, no infinity."""
    if type(value) is not int:
        raise TypeError
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands in it twice")
    return found
