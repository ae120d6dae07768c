"""Blocks held by sequences: reserving a worst case, giving everything back.

Owns how many blocks a sequence needs at most and the lane's claim on them.  Ignorant of when a policy reserves.
"""

from __future__ import annotations

from everystep.errors import ConfigError
from everystep.sched.blocks import BlockPool
from everystep.types import Sequence

DEFAULT_CONTEXT_TOKENS = 2048  # what a private pool expects of a sequence where no limit is given


def private_pool(num_seats: int, max_model_len: int | None) -> BlockPool:
    """A pool that ``num_seats`` sequences of full length can't exhaust, for a policy that is used by itself."""
    tokens_a_seat = DEFAULT_CONTEXT_TOKENS if max_model_len is None else max_model_len
    if tokens_a_seat < 2:
        raise ConfigError(
            f"max_model_len={tokens_a_seat} leaves no room for a prompt and a token", param="max_model_len"
        )
    block_size = 32
    return BlockPool(max(1, num_seats) * -(-tokens_a_seat // block_size), block_size)


def worst_case_blocks(pool: BlockPool, sequence: Sequence) -> int:
    """Blocks of the sequence's longest end, at most the whole pool.  The last token of all is never computed."""
    return pool.blocks_for(sequence.max_total_tokens - 1)


def try_reserve(pool: BlockPool, lane: object, sequence: Sequence) -> bool:
    """Give the sequence the blocks of its worst case, if ``lane`` may take so many now."""
    num_blocks = worst_case_blocks(pool, sequence)
    if num_blocks > pool.num_free_for(lane):
        return False
    sequence.block_ids = pool.allocate(num_blocks)
    return True


def release(pool: BlockPool, sequence: Sequence) -> None:
    """Give back what the sequence holds; nothing happens the second time."""
    pool.free(sequence.block_ids)
    sequence.block_ids = []
