"""A step's tensors in one piece of memory, so that one copy takes them all to the device.

Owns the layout.  Ignorant of what stands in it and of who copies when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everystep.runner.torch_paged.device_copies import host_bytes
from everystep.runner.torch_paged.step_batch import StepBatch
from everystep.runner.torch_paged.step_packing import PackedRows


@dataclass(frozen=True, slots=True)
class StepShape:
    """How large a step's tensors are.  The maxima are what the kernels are told; shapes of graphs round them up."""

    num_tokens: int
    num_rows: int
    num_samples: int
    table_width: int
    max_query_len: int
    max_context_len: int

    def parts(self) -> Iterator[tuple[str, torch.dtype, tuple[int, ...]]]:
        """Name, type and shape of each tensor of :class:`StepBatch`: those of eight bytes first, so all are aligned."""
        for name in ("input_ids", "position_ids", "slots"):
            yield name, torch.int64, (self.num_tokens,)
        yield "sample_idx", torch.int64, (self.num_samples,)
        yield "query_begins", torch.int32, (self.num_rows + 1,)
        yield "context_lens", torch.int32, (self.num_rows,)
        yield "block_table", torch.int32, (self.num_rows, self.table_width)

    @property
    def num_bytes(self) -> int:
        return sum(_size(dtype, shape) for _, dtype, shape in self.parts())

    def views(self, memory: Tensor) -> dict[str, Tensor]:
        """The tensors by name, all within ``memory`` ``[bytes]`` uint8."""
        views, begin = {}, 0
        for name, dtype, shape in self.parts():
            end = begin + _size(dtype, shape)
            views[name] = memory[begin:end].view(dtype).view(shape)
            begin = end
        return views

    def batch(self, memory: Tensor) -> StepBatch:
        """A new batch whose tensors lie in ``memory``."""
        return StepBatch(**self.views(memory), max_query_len=self.max_query_len, max_context_len=self.max_context_len)


class HostStep:
    """One step's inputs on the host, written through ``arrays``."""

    def __init__(self, shape: StepShape, device: torch.device) -> None:
        """``device`` is the one that they go to."""
        self.shape = shape
        self._memory = host_bytes(shape.num_bytes, device)
        self.arrays: dict[str, NDArray[Any]] = {name: view.numpy() for name, view in shape.views(self._memory).items()}

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


def _size(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * int(dtype.itemsize)
