"""Which rows of a step attend in one call, and what of the cache each of them sees.

Owns the grouping and the masks.  Ignorant of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from everystep.runner.torch_paged.step_batch import StepBatch

MAX_TILE_TOKENS = 256  # of a row whose attention needs a mask: bounds [tokens, keys]
MAX_PADDING = 1.25  # longest of a group by its shortest


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of equally many new tokens that attend in one call."""

    tokens: Tensor  # [rows, tokens] int64: which of the step's tokens they are
    key_slots: Tensor  # [rows, keys] int64: where the tokens that they see lie
    mask: Tensor | None  # [rows, 1, tokens, keys], 0 where a token sees and -inf where not
    is_causal: bool  # the texts' very beginnings, so that the plain triangle is the mask


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of a row's new tokens and the span of positions it sees."""

    row: int
    first_token: int
    first_position: int
    num_tokens: int
    first_key: int
    is_causal: bool

    @property
    def num_keys(self) -> int:
        return self.first_position + self.num_tokens - self.first_key


def group_rows(
    batch: StepBatch, block_size: int, padding_slot: int, window: int | None, is_tiled: bool, dtype: torch.dtype
) -> list[RowGroup]:
    """``padding_slot`` is one that holds finite numbers.  With ``is_tiled`` no row attends in one piece by size."""
    table = batch.block_table.cpu().numpy()
    pieces = sorted(
        _pieces(batch, window, is_tiled), key=lambda piece: (piece.num_tokens, piece.is_causal, piece.num_keys)
    )
    groups = []
    for (_, is_causal), alike in groupby(pieces, key=lambda piece: (piece.num_tokens, piece.is_causal)):
        for members in _of_similar_length(list(alike)):
            key_slots = _key_slots(members, table, block_size, padding_slot)
            mask = None if is_causal else _mask(members, key_slots.shape[1], window)
            device = batch.input_ids.device
            groups.append(
                RowGroup(
                    tokens=torch.from_numpy(_tokens(members)).to(device),
                    key_slots=torch.from_numpy(key_slots).to(device),
                    mask=None if mask is None else torch.from_numpy(mask).to(device, dtype),
                    is_causal=is_causal,
                )
            )
    return groups


def _pieces(batch: StepBatch, window: int | None, is_tiled: bool) -> Iterator[_Piece]:
    begins, contexts = batch.query_begins.tolist(), batch.context_lens.tolist()
    for row, (begin, end, context) in enumerate(zip(begins, begins[1:], contexts, strict=False)):
        num_new, start = end - begin, context - (end - begin)
        is_triangle = start == 0 and num_new > 1 and (window is None or num_new <= window) and not is_tiled
        tile = num_new if is_triangle else MAX_TILE_TOKENS
        for offset in range(0, num_new, tile):
            position = start + offset
            first_key = 0 if window is None else max(0, position - window + 1)
            yield _Piece(row, begin + offset, position, min(tile, num_new - offset), first_key, is_triangle)


def _of_similar_length(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """``pieces`` come shortest first."""
    members: list[_Piece] = []
    for piece in pieces:
        if members and piece.num_keys > max(members[0].num_keys * MAX_PADDING, members[0].num_keys + 32):
            yield members
            members = []
        members.append(piece)
    yield members


def _tokens(members: list[_Piece]) -> np.ndarray:
    firsts = np.array([piece.first_token for piece in members], np.int64)
    return firsts[:, None] + np.arange(members[0].num_tokens)  # [rows, tokens]


def _key_slots(members: list[_Piece], table: np.ndarray, block_size: int, padding_slot: int) -> np.ndarray:
    num_keys = np.array([piece.num_keys for piece in members])
    rows = np.array([piece.row for piece in members])
    positions = np.array([piece.first_key for piece in members])[:, None] + np.arange(num_keys.max())  # [rows, keys]
    blocks = table[rows[:, None], np.minimum(positions // block_size, table.shape[1] - 1)].astype(np.int64)
    is_own = np.arange(num_keys.max()) < num_keys[:, None]
    return np.where(is_own, blocks * block_size + positions % block_size, padding_slot)


def _mask(members: list[_Piece], num_keys: int, window: int | None) -> np.ndarray | None:
    """``[rows, 1, tokens, keys]``; ``None`` where each row's only token sees all keys."""
    if members[0].num_tokens == 1 and all(piece.num_keys == num_keys for piece in members):
        return None
    keys = np.array([piece.first_key for piece in members])[:, None, None] + np.arange(num_keys)
    tokens = np.array([piece.first_position for piece in members])[:, None] + np.arange(members[0].num_tokens)
    is_seen = keys <= tokens[:, :, None]
    if window is not None:
        is_seen &= keys > tokens[:, :, None] - window
    return np.where(is_seen, np.float32(0), np.float32(-np.inf))[:, None]
