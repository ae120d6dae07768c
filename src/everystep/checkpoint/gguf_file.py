"""The GGUF container: its metadata and where its tensors lie.

Owns the binary layout (GGUF versions 2 and 3, little endian; layout after the specification in ggml's docs/gguf.md).
Written for speed of start: the reference reader takes seconds over a vocabulary's 100,000 strings, this one a tenth of
one, and a fiftieth where it only walks over them; a test compares the two.  Ignorant of what models are.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everystep.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_COUNT = 10**8  # of anything in the header: more is a corrupt file, not a big model
MAX_SHORT_ARRAY = 1024  # one number a layer, not one a token

STRING, ARRAY = 8, 9
SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
U32, U64 = SCALARS[4], SCALARS[10]
SKIPPED = object()


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies.  ``shape`` is NumPy's order (rows first), ``offset`` counts from the file's begin."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed header.  ``num_bytes`` is the whole file's size."""

    path: Path
    num_bytes: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_gguf(path: Path, *, with_vocabulary: bool = True) -> GgufFile:
    """Parse the header.  Raises :class:`ModelError` for what is no GGUF file, or is cut short within its header.

    Without the vocabulary, arrays of texts and long arrays are walked over and left out.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ModelError(f"{path} is empty") from error
    with data:  # only the header's pages are touched, and let go at the end
        try:
            return _Parser(path, data, with_vocabulary).parse()
        except (struct.error, IndexError, UnicodeDecodeError, MemoryError, OverflowError) as error:
            raise ModelError(f"{path} is corrupt or cut short within its header") from error


class _Parser:
    def __init__(self, path: Path, data: mmap.mmap, with_vocabulary: bool) -> None:
        self._path = path
        self._data = data
        self._with_vocabulary = with_vocabulary
        self._at = 0

    def parse(self) -> GgufFile:
        if self._data[:4] != MAGIC:
            raise ModelError(f"{self._path} is no GGUF file")
        self._at = 4
        version = self._scalar(U32)
        if version not in VERSIONS:
            raise ModelError(f"{self._path} is GGUF version {version}; versions {VERSIONS} are supported")
        num_tensors, num_keys = self._count(), self._count()
        entries = ((self._string(), self._value(self._scalar(U32))) for _ in range(num_keys))
        metadata = self._without_repeats(entries)
        headers = [self._tensor_header() for _ in range(num_tensors)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ModelError(f"{self._path} is corrupt: its alignment is {alignment!r:.60}")
        start = -(-self._at // alignment) * alignment
        infos = (TensorInfo(name, shape, kind, start + offset) for name, shape, kind, offset in headers)
        tensors = self._without_repeats((info.name, info) for info in infos)
        return GgufFile(self._path, len(self._data), metadata, tensors)

    def _without_repeats(self, entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Of two entries of one name nobody can say which is meant."""
        found: dict[str, Any] = {}
        for name, value in entries:
            if name in found:
                raise ModelError(f"{self._path} is corrupt: {name!r:.200} stands in it twice")
            found[name] = value
        return {name: value for name, value in found.items() if value is not SKIPPED}

    def _tensor_header(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        num_dims = self._scalar(U32)
        if num_dims > 4:
            raise ModelError(f"{self._path} is corrupt: tensor {name!r:.200} has {num_dims} dimensions")
        shape = tuple(self._scalar(U64) for _ in range(num_dims))[::-1]  # the file has the fastest first
        return name, shape, self._scalar(U32), self._scalar(U64)

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            return self._array()
        if kind not in SCALARS:
            raise ModelError(f"{self._path} is corrupt: metadata of unknown type {kind}")
        return self._scalar(SCALARS[kind])

    def _array(self) -> Any:
        kind, count = self._scalar(U32), self._count()
        if kind == STRING:
            return self._strings(count) if self._with_vocabulary else self._skip_strings(count)
        if kind not in SCALARS:  # arrays of arrays are allowed by the format and used by nobody
            raise ModelError(f"{self._path} is corrupt: array of unsupported type {kind}")
        layout = struct.Struct(f"<{count}{SCALARS[kind].format[-1]}")
        begin = self._at
        self._at += layout.size
        if self._at > len(self._data):
            raise IndexError
        is_kept = self._with_vocabulary or count <= MAX_SHORT_ARRAY
        return list(layout.unpack_from(self._data, begin)) if is_kept else SKIPPED

    def _strings(self, count: int) -> list[str]:
        data, at, unpack = self._data, self._at, U64.unpack_from
        strings = []
        for _ in range(count):
            begin = at + 8
            at = begin + unpack(data, at)[0]
            strings.append(data[begin:at].decode())
        if at > len(data):
            raise IndexError
        self._at = at
        return strings

    def _skip_strings(self, count: int) -> object:
        data, at, unpack = self._data, self._at, U64.unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        if at > len(data):
            raise IndexError
        self._at = at
        return SKIPPED

    def _string(self) -> str:
        return self._strings(1)[0]

    def _count(self) -> int:
        count = self._scalar(U64)
        if count > MAX_COUNT:
            raise ModelError(f"{self._path} is corrupt: it claims {count} entries")
        return int(count)

    def _scalar(self, layout: struct.Struct) -> Any:
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return value
