"""Whose turn it is at the free blocks when several lanes share a pool.

Owns the order of the lanes that wait for blocks.  Ignorant of what a block or a lane is.

A lane whose head of line lacks blocks claims what it lacks.  Others may then take only what the older claims leave,
so that the blocks that come free gather until the oldest claim is met: small admissions of one lane can't starve a
large one of another, and as the oldest claim sees every free block, two claims never wait for each other.
"""

from __future__ import annotations


class Claims:
    """Claims on free blocks, oldest first.  A lane has at most one, and keeps its place while its need changes."""

    def __init__(self) -> None:
        self._num_blocks: dict[object, int] = {}  # lane → blocks; a dict keeps the order of first insertion

    def __len__(self) -> int:
        return len(self._num_blocks)

    def num_before(self, lane: object) -> int:
        """Blocks that older claims of other lanes hold back from ``lane``."""
        num_blocks = 0
        for claimant, num_claimed in self._num_blocks.items():
            if claimant is lane:
                break
            num_blocks += num_claimed
        return num_blocks

    def put(self, lane: object, num_blocks: int) -> None:
        """Claim ``num_blocks`` in all; a claim that stands keeps its age."""
        self._num_blocks[lane] = num_blocks

    def drop(self, lane: object) -> None:
        """The claim is met, or nobody waits in the lane any more."""
        self._num_blocks.pop(lane, None)
