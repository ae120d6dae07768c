"""The step after this one, prepared while the device computes.

Owns the packing of steps in which every row decodes one token, ahead of time or not, and the check that what was
foreseen is what is asked.  All of such a step is known before the tokens are, but the tokens themselves and blocks that
the scheduler has yet to hand out: those are filled in when it comes.  Ignorant of devices' work and of policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from everystep.runner.torch_paged.device_inputs import HostStep, StepShape
from everystep.types import Row
from everystep.types import Sequence as TokenSequence


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One new token for each of some sequences; ``shape`` may have room for more rows, which are padding."""

    host: HostStep
    block_size: int
    sequences: tuple[TokenSequence, ...]
    positions: tuple[int, ...]  # of the new tokens
    tables: tuple[list[int], ...]  # blocks that the rows had when this was made
    lacking: tuple[int, ...]  # rows whose new token goes to a block that they didn't have

    @classmethod
    def prepare(
        cls,
        sequences: Sequence[TokenSequence],
        positions: Sequence[int],
        shape: StepShape,
        block_size: int,
        padding_block: int,
        device: torch.device,
    ) -> DecodeStep:
        """``padding_block`` is nobody's: padding rows write into it and see its first token."""
        host = HostStep(shape, device)
        num_blocks = [position // block_size + 1 for position in positions]
        tables = tuple(one.block_ids[:count] for one, count in zip(sequences, num_blocks, strict=True))
        arrays = host.arrays
        arrays["input_ids"][:] = 0  # the rows' own come with `filled`
        arrays["block_table"][:] = 0
        for row, table in enumerate(tables):
            arrays["block_table"][row, : len(table)] = table
        count = len(positions)
        arrays["block_table"][count:, 0] = padding_block
        every = np.zeros(shape.num_rows, np.int64)  # [rows]
        every[:count] = positions
        arrays["position_ids"][:] = every
        arrays["context_lens"][:] = every + 1
        blocks = arrays["block_table"][np.arange(shape.num_rows), every // block_size].astype(np.int64)
        arrays["slots"][:] = blocks * block_size + every % block_size
        arrays["sample_idx"][:] = np.arange(shape.num_samples)
        arrays["query_begins"][:] = np.arange(shape.num_rows + 1)
        lacking = tuple(row for row in range(count) if len(tables[row]) < num_blocks[row])
        return cls(host, block_size, tuple(sequences), tuple(positions), tables, lacking)

    def is_of(self, rows: Sequence[Row]) -> bool:
        """Whether these are the rows that were foreseen, where they were foreseen."""
        if len(rows) != len(self.sequences):
            return False
        for row, sequence, position, table in zip(rows, self.sequences, self.positions, self.tables, strict=True):
            if row.sequence is not sequence or row.start != position or row.num_new_tokens != 1:
                return False
            if sequence.block_ids[: len(table)] != table:
                return False
        return True

    def filled(self, rows: Sequence[Row]) -> HostStep:
        """With the tokens, and the blocks that were lacking."""
        arrays = self.host.arrays
        arrays["input_ids"][: len(rows)] = [row.sequence.token_ids[row.start] for row in rows]
        for index in self.lacking:
            position = self.positions[index]
            ordinal = position // self.block_size
            block = rows[index].sequence.block_ids[ordinal]
            arrays["block_table"][index, ordinal] = block
            arrays["slots"][index] = block * self.block_size + position % self.block_size
        return self.host


def is_decode(rows: Sequence[Row]) -> bool:
    """Whether each row computes one token and draws the next."""
    return all(row.num_new_tokens == 1 and row.samples for row in rows)
