"""The KV cache's tensors: one for the keys and one for the values of each layer.

Owns their memory.  Ignorant of who uses which block.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

NUMPY_TYPES = {"f32": np.float32, "bf16": np.uint16, "f16": np.uint16, "u8": np.uint8, "i8": np.int8}


class KvCache:
    """What the compiled graph's cache inputs ask for; :meth:`allocate` fills ``tensors`` by input name."""

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._ports = [port for port in compiled.inputs if "_cache." in port.get_any_name()]
        shapes = {port.get_any_name(): _block_shape(port) for port in self._ports}
        self.block_size = next(shape[1] for name, shape in shapes.items() if name.startswith("value_cache"))
        self.block_bytes = sum(
            int(np.prod(shapes[port.get_any_name()])) * int(port.element_type.size) for port in self._ports
        )
        self.tensors: dict[str, ov.Tensor] = {}
        self._arrays: list[npt.NDArray[Any]] = []  # a tensor doesn't own its memory

    def allocate(self, num_blocks: int) -> None:
        """Pages are the kernel's zeros until touched, so a large cache costs what it holds."""
        for port in self._ports:
            shape = [num_blocks, *_block_shape(port)]
            array = _untouched_zeros(shape, np.dtype(NUMPY_TYPES[port.element_type.to_string()]))
            self._arrays.append(array)
            self.tensors[port.get_any_name()] = ov.Tensor(array, shape, port.element_type)

    def clear(self) -> None:
        self.tensors.clear()
        self._arrays.clear()


def _block_shape(port: Any) -> list[int]:
    """Heads, tokens, head size; the latter two hold scales as well where the cache is quantised."""
    return [dim.get_length() for dim in list(port.partial_shape)[1:]]


def _untouched_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """NumPy's own zeros ask for huge pages: a first token would touch 2 MiB in each of the tensors."""
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)
