"""A plan's rows as the arrays of one forward pass.

Owns the packing, on the host.  Ignorant of kernels and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from everystep.runner.torch_paged.step_batch import StepBatch
from everystep.types import Row

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PackedRows:
    """What :class:`StepBatch` holds, as NumPy arrays of the same names and shapes."""

    input_ids: I64  # [T]
    position_ids: I64  # [T]
    slots: I64  # [T]
    query_begins: I32  # [B + 1]
    context_lens: I32  # [B]
    block_table: I32  # [B, most blocks of a row]
    sample_idx: I64  # [S]

    def to(self, device: torch.device) -> StepBatch:
        """The same as tensors; on a CPU they share the arrays' memory."""
        return StepBatch(
            **{name: torch.from_numpy(getattr(self, name)).to(device) for name in self.__slots__},
            max_query_len=int(np.diff(self.query_begins).max()),
            max_context_len=int(self.context_lens.max()),
        )


def pack(rows: Sequence[Row], block_size: int) -> PackedRows:
    """Lists first, arrays once: for rows of a token or two that is quicker than slicing arrays."""
    ids: list[int] = []
    begins, samples, num_blocks = [0], [], []
    for row in rows:
        ids += row.sequence.token_ids[row.start : row.end]
        begins.append(len(ids))
        num_blocks.append(-(-row.end // block_size))
        if row.samples:
            samples.append(len(ids) - 1)
    table = _padded((row.sequence.block_ids[:n] for row, n in zip(rows, num_blocks, strict=True)), num_blocks)
    num_new = np.diff(begins)  # [B]
    positions = np.arange(len(ids)) + np.repeat([row.start for row in rows] - np.array(begins[:-1]), num_new)
    blocks = table[np.repeat(np.arange(len(rows)), num_new), positions // block_size]  # [T]
    return PackedRows(
        input_ids=np.array(ids, np.int64),
        position_ids=positions,
        slots=blocks.astype(np.int64) * block_size + positions % block_size,
        query_begins=np.array(begins, np.int32),
        context_lens=np.array([row.end for row in rows], np.int32),
        block_table=table,
        sample_idx=np.array(samples, np.int64),
    )


def _padded(lists: Iterable[list[int]], lengths: Sequence[int]) -> I32:
    """``[lists, longest]``, padded with 0."""
    table = np.zeros((len(lengths), max(lengths)), np.int32)
    for i, (values, length) in enumerate(zip(lists, lengths, strict=True)):
        table[i, :length] = values
    return table
