"""A step's tensors in one piece of memory, so that one copy takes them all to the device.

Owns the layout.  Ignorant of what stands in it and of who copies when.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everystep.runner.torch_paged.device_copies import host_bytes
from everystep.runner.torch_paged.step_batch import StepBatch
from everystep.runner.torch_paged.step_packing import PackedRows

EIGHT_BYTES = ("input_ids", "position_ids", "slots", "sample_idx")
TORCH_TYPES = {8: torch.int64, 4: torch.int32}
NUMPY_TYPES = {8: np.int64, 4: np.int32}


class Part(NamedTuple):
    """Where one tensor lies."""

    name: str
    item_bytes: int
    size: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class StepShape:
    """How large a step's tensors are.  The maxima are what the kernels are told; shapes of graphs round them up."""

    num_tokens: int
    num_rows: int
    num_samples: int
    table_width: int
    max_query_len: int
    max_context_len: int

    def parts(self) -> Iterator[Part]:
        """Each tensor of :class:`StepBatch`: those of eight bytes first, so that all are aligned."""
        tokens, rows = self.num_tokens, self.num_rows
        sizes: dict[str, tuple[int, ...]] = {
            "input_ids": (tokens,),
            "position_ids": (tokens,),
            "slots": (tokens,),
            "sample_idx": (self.num_samples,),
            "query_begins": (rows + 1,),
            "context_lens": (rows,),
            "block_table": (rows, self.table_width),
        }
        begin = 0
        for name, size in sizes.items():
            item_bytes = 8 if name in EIGHT_BYTES else 4
            end = begin + item_bytes * math.prod(size)
            yield Part(name, item_bytes, size, begin, end)
            begin = end

    @property
    def num_bytes(self) -> int:
        return max(part.end for part in self.parts())

    def batch(self, memory: Tensor) -> StepBatch:
        """A new batch whose tensors lie in ``memory`` ``[bytes]`` uint8."""
        views = {
            part.name: memory[part.begin : part.end].view(TORCH_TYPES[part.item_bytes]).view(part.size)
            for part in self.parts()
        }
        return StepBatch(**views, max_query_len=self.max_query_len, max_context_len=self.max_context_len)


class HostStep:
    """One step's inputs on the host, written through ``arrays``."""

    def __init__(self, shape: StepShape, device: torch.device) -> None:
        """``device`` is the one that they go to."""
        self.shape = shape
        self._memory = host_bytes(shape.num_bytes, device)
        flat = self._memory.numpy()
        self.arrays: dict[str, NDArray[Any]] = {
            part.name: flat[part.begin : part.end].view(NUMPY_TYPES[part.item_bytes]).reshape(part.size)
            for part in shape.parts()
        }

    @classmethod
    def of(cls, packed: PackedRows, device: torch.device) -> HostStep:
        shape = StepShape(
            num_tokens=len(packed.input_ids),
            num_rows=len(packed.context_lens),
            num_samples=len(packed.sample_idx),
            table_width=packed.block_table.shape[1],
            max_query_len=int(np.diff(packed.query_begins).max()),
            max_context_len=int(packed.context_lens.max()),
        )
        step = cls(shape, device)
        for name, array in step.arrays.items():
            array[...] = getattr(packed, name)
        return step

    def to(self, device: torch.device) -> StepBatch:
        """A copy on the device, behind the work that is queued there.  On a CPU this very memory."""
        return self.shape.batch(self._memory.to(device, non_blocking=True))

    def into(self, memory: Tensor) -> None:
        """Queue the copy to where a graph of this shape reads."""
        memory[: self.shape.num_bytes].copy_(self._memory, non_blocking=True)
