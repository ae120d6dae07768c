"""A plan's rows as the arrays that the paged graph reads.

Owns the packing.  Ignorant of the graph's insides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everystep.types import Row

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """All rows packed one after another: ``T`` tokens of ``B`` rows."""

    input_ids: I64  # [T]
    position_ids: I64  # [T]
    past_lens: I32  # [B]: tokens already in the cache
    subsequence_begins: I32  # [B + 1]: where each row's tokens begin
    block_indices: I32  # [sum of the rows' blocks]
    block_indices_begins: I32  # [B + 1]
    max_context_len: I32  # []
    sample_idx: I64  # [rows that sample], or one row of no interest where none does

    def named(self) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
        """Arrays by the graph's input names."""
        for name in self.__slots__:
            yield name, getattr(self, name)


def pack(rows: Sequence[Row], block_size: int) -> StepInputs:
    """Lists first, arrays once: for rows of a token or two that is quicker than slicing arrays."""
    ids: list[int] = []
    positions: list[int] = []
    begins, blocks, block_begins, samples = [0], [], [0], []
    for row in rows:
        sequence, start, end = row.sequence, row.start, row.start + row.num_new_tokens
        if row.num_new_tokens == 1:
            ids.append(sequence.token_ids[start])
            positions.append(start)
        else:
            ids += sequence.token_ids[start:end]
            positions += range(start, end)
        begins.append(len(ids))
        blocks += sequence.block_ids[: -(-end // block_size)]
        block_begins.append(len(blocks))
        if end == len(sequence.token_ids):
            samples.append(len(ids) - 1)
    return StepInputs(
        input_ids=np.array(ids, np.int64),
        position_ids=np.array(positions, np.int64),
        past_lens=np.array([row.start for row in rows], np.int32),
        subsequence_begins=np.array(begins, np.int32),
        block_indices=np.array(blocks, np.int32),
        block_indices_begins=np.array(block_begins, np.int32),
        max_context_len=np.array(max(row.end for row in rows), np.int32),
        sample_idx=np.array(samples or [0], np.int64),
    )
