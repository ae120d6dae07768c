"""The paged KV cache's bookkeeping: which block belongs to whom, which can be shared, which goes next.

Owns block ids, reference counts, the prefix index and the lanes' claims.  Ignorant of tensors and policies.
A free block that still holds a known prefix stays findable until it is handed out again: the free list *is* the
eviction order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

DIGEST_BYTES = 16
ROOT = b""


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens, shared by all lanes."""

    def __init__(self, num_blocks: int = 4096, block_size: int = 32, *, prefix_cache: bool = True) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool needs blocks and a block size, got {num_blocks} and {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._num_refs = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))  # first out first
        self._digests: dict[int, bytes] = {}  # block → digest of its tokens and all before them
        self._index: dict[bytes, int] = {}  # digest → the one block that is shared for it
        self._claims: dict[str, int] = {}  # lane → blocks its head of line lacks; oldest claim first

    # --- counts ----------------------------------------------------------------------------------
    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    @property
    def num_tokens(self) -> int:
        """Tokens that the whole pool holds."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` take, at most the whole pool."""
        return min(self.num_blocks, -(-num_tokens // self.block_size))

    # --- give and take ---------------------------------------------------------------------------
    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks, least recently freed first; what they cached is forgotten.  The caller has checked."""
        assert num_blocks <= len(self._free), f"{num_blocks} blocks asked, {len(self._free)} free"
        taken = []
        for _ in range(num_blocks):
            block, _none = self._free.popitem(last=False)
            self._forget(block)
            self._num_refs[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more owner for blocks found by :meth:`match_prefix`."""
        for block in blocks:
            if self._num_refs[block] == 0:
                del self._free[block]
            self._num_refs[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One owner less.  A sequence's last block goes first: beginnings are what others share."""
        for block in reversed(blocks):
            assert self._num_refs[block] > 0, f"block {block} released twice"
            self._num_refs[block] -= 1
            if self._num_refs[block] == 0:
                self._free[block] = None
                if self._index.get(self._digests.get(block, ROOT)) != block:
                    self._free.move_to_end(block, last=False)  # holds nothing to be found: reuse it first

    # --- prefixes --------------------------------------------------------------------------------
    def match_prefix(self, token_ids: Sequence[int]) -> list[int]:
        """Blocks that hold the beginning of ``token_ids``, at most all but the last token: one is always computed."""
        if not self.prefix_cache:
            return []
        matched, digest = [], ROOT
        for start in range(0, (len(token_ids) - 1) // self.block_size * self.block_size, self.block_size):
            digest = _digest(digest, token_ids[start : start + self.block_size])
            block = self._index.get(digest)
            if block is None:
                break
            matched.append(block)
        return matched

    def num_revived(self, blocks: Iterable[int]) -> int:
        """How many of these are free now, so that sharing them takes from the free ones."""
        return sum(self._num_refs[block] == 0 for block in blocks)

    def commit(self, token_ids: Sequence[int], blocks: Sequence[int], old_computed: int, new_computed: int) -> None:
        """Make blocks findable that became full between two counts of computed tokens."""
        if not self.prefix_cache:
            return
        for i in range(old_computed // self.block_size, new_computed // self.block_size):
            parent = self._digests[blocks[i - 1]] if i else ROOT
            digest = _digest(parent, token_ids[i * self.block_size : (i + 1) * self.block_size])
            self._digests[blocks[i]] = digest
            self._index.setdefault(digest, blocks[i])

    def _forget(self, block: int) -> None:
        digest = self._digests.pop(block, None)
        if digest is not None and self._index.get(digest) == block:
            del self._index[digest]

    # --- claims of lanes -------------------------------------------------------------------------
    def num_admittable(self, lane: str) -> int:
        """Free blocks less what older claims of other lanes wait for; the oldest claimant sees them all.

        Admissions heed this, growth of running rows doesn't.  So the oldest claimant's blocks gather while others
        run out, and no lane starves another.
        """
        free = len(self._free)
        for claimant, num_blocks in self._claims.items():
            if claimant == lane:
                break
            free -= num_blocks
        return max(0, free)

    def claim(self, lane: str, num_blocks: int) -> None:
        """The lane's head of line lacks this many blocks.  A standing claim keeps its age."""
        self._claims[lane] = num_blocks

    def unclaim(self, lane: str) -> None:
        self._claims.pop(lane, None)

    # --- integrity -------------------------------------------------------------------------------
    def check(self, owners: Iterable[Sequence[int]] | None = None) -> None:
        """Raise ``AssertionError`` unless every count agrees; with the block lists of all owners, also with these."""
        free = {block for block, refs in enumerate(self._num_refs) if refs == 0}
        assert free == set(self._free), f"free list and counts differ on {sorted(free ^ set(self._free))}"
        assert all(refs >= 0 for refs in self._num_refs), "negative reference count"
        for digest, block in self._index.items():
            assert self._digests.get(block) == digest, f"block {block} is indexed under a digest it doesn't hold"
        if owners is not None:
            counted = [0] * self.num_blocks
            for blocks in owners:
                for block in blocks:
                    counted[block] += 1
            assert counted == self._num_refs, "reference counts differ from the owners' lists"


def _digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Identity of a block by content and all that came before; 128 bits, so that a wrong hit doesn't happen."""
    return blake2b(parent + np.asarray(token_ids, np.int64).tobytes(), digest_size=DIGEST_BYTES).digest()
