"""A plan's rows as the arrays that the paged graph reads.

Owns the packing, plain and batch-invariant.  Ignorant of the graph's insides.
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


def split(rows: Sequence[Row], max_tokens: int) -> Iterator[list[Row]]:
    """The same work in passes of at most ``max_tokens``, earlier tokens of a row in earlier passes."""
    group: list[Row] = []
    room = max_tokens
    for row in rows:
        start = row.start
        while start < row.end:
            num_tokens = min(room, row.end - start)
            group.append(Row(row.sequence, row.seat, start, num_tokens))
            start, room = start + num_tokens, room - num_tokens
            if not room:
                yield group
                group, room = [], max_tokens
    if group:
        yield group


def pack_invariant(rows: Sequence[Row], block_size: int, min_tokens: int) -> StepInputs:
    """Every token as a row of its own, so that the attention kernel doesn't depend on how a text was cut.

    The kernel has three ways: tiles for a row of several tokens, one pass over the context for a row of one token, and
    for few rows a pass that is split over threads; they differ in the last bits.  Rows of one token beside an empty
    row always take the second way, since the empty one counts as a prompt.  The keys and values of all tokens are
    written before any of them attends.

    Under ``min_tokens`` the last token comes again: some matrix products have a way of their own for one row.
    """
    tokens = [(row.sequence, position) for row in rows for position in range(row.start, row.end)]
    tokens += tokens[-1:] * (min_tokens - len(tokens))
    positions = [position for _, position in tokens]
    tables = [sequence.block_ids[: position // block_size + 1] for sequence, position in tokens]
    block_begins = np.cumsum([0, *map(len, tables), 0], dtype=np.int32)
    samples = np.cumsum([row.num_new_tokens for row in rows])[[row.samples for row in rows]] - 1
    return StepInputs(
        input_ids=np.array([sequence.token_ids[position] for sequence, position in tokens], np.int64),
        position_ids=np.array(positions, np.int64),
        past_lens=np.array([*positions, 0], np.int32),
        subsequence_begins=np.array([*range(len(tokens) + 1), len(tokens)], np.int32),
        block_indices=np.array([block for table in tables for block in table], np.int32),
        block_indices_begins=block_begins,
        max_context_len=np.array(max(positions) + 1, np.int32),
        sample_idx=_at_least(min_tokens, samples) if len(samples) else np.zeros(1, np.int64),
    )


def _at_least(min_length: int, indices: I64) -> I64:
    """``indices``, the last repeated up to ``min_length``."""
    return np.concatenate([indices, np.repeat(indices[-1:], max(0, min_length - len(indices)))])
