"""A safetensors file written array by array, so that one array's memory suffices for a model of any size.

Owns the order and places of what is written, and the copy of a file with other names.
Its layout is read back by :mod:`everystep.checkpoint.safetensors_file`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.checkpoint.safetensors_file import ITEM_BYTES, LENGTH_BYTES, SafetensorsFile

ALIGNMENT = 8  # of the data's begin, as the format asks
COPY_BYTES = 1 << 22
Load = Callable[[str], npt.NDArray[np.float32]]


def num_data_bytes(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Of all arrays in float32."""
    return sum(map(_num_bytes, shapes.values()))


def write_float32(path: Path, shapes: Mapping[str, tuple[int, ...]], load: Load, report: Callable[[int], None]) -> None:
    """Arrays of ``shapes``, each loaded when its turn comes; ``report`` is told each array's bytes once written."""
    with path.open("wb") as file:
        file.write(_header(shapes))
        for name, shape in shapes.items():
            array = load(name)
            assert array.shape == shape, f"{name} is {array.shape}, not {shape}"
            file.write(np.ascontiguousarray(array, "<f4").data)
            report(array.nbytes)


def copy_renamed(
    source: SafetensorsFile, target: Path, names: Mapping[str, str], report: Callable[[int], None]
) -> None:
    """The same arrays, byte for byte, some of them by other names."""
    with source.path.open("rb") as old, target.open("wb") as new:
        new.write(header_bytes({names.get(name, name): entry for name, entry in source.header.items()}))
        old.seek(source.data_start)
        while chunk := old.read(COPY_BYTES):
            new.write(chunk)
            report(len(chunk))


def _header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}  # without it transformers refuses the file
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + _num_bytes(shape)
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    return header_bytes(entries)


def header_bytes(entries: Mapping[str, object]) -> bytes:
    """The length of the JSON, and the JSON, with spaces behind it up to the alignment."""
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _num_bytes(shape: tuple[int, ...]) -> int:
    return math.prod(shape) * ITEM_BYTES["F32"]
