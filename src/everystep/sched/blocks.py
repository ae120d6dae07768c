"""The paged KV cache's bookkeeping: which block belongs to whom, which can be shared, which goes next.

Owns block ids, reference counts, the prefix index and the lanes' claims.  Ignorant of tensors and policies.
A free block that still holds a known prefix stays findable until it is handed out again: the free list *is* the
eviction order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

from everystep.errors import ConfigError


class BlockPool:
    """``num_blocks`` blocks of ``block_size`` tokens, shared by all lanes."""

    def __init__(self, num_blocks: int = 4096, block_size: int = 32, *, prefix_cache: bool = True) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ConfigError(f"a pool needs blocks and a block size, got {num_blocks} and {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self._num_refs = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))  # first out first
        self._keys: dict[int, bytes] = {}  # findable block → what stands in it and before it
        self._index: dict[bytes, int] = {}  # the same the other way round
        self._claims: dict[Hashable, int] = {}  # lane → blocks its head of line lacks; oldest claim first

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

    @property
    def is_whole(self) -> bool:
        """Every block is free and no claim stands: so it must be whenever no lane has work."""
        return len(self._free) == self.num_blocks and not self._claims

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` take, at most the whole pool."""
        return min(self.num_blocks, -(-num_tokens // self.block_size))

    def num_refs(self, block: int) -> int:
        """Owners of the block.  One that has several is read by all and written by none."""
        return self._num_refs[block]

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
                if block not in self._keys:
                    self._free.move_to_end(block, last=False)  # holds nothing to be found: reuse it first

    # --- prefixes --------------------------------------------------------------------------------
    def match_prefix(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks that hold the longest known beginning of a text whose full blocks have these keys, in order."""
        matched: list[int] = []
        for key in keys:
            if (block := self._index.get(key)) is None:
                break
            matched.append(block)
        return matched

    def num_revived(self, blocks: Iterable[int]) -> int:
        """How many of these are free now, so that sharing them takes from the free ones."""
        return sum(self._num_refs[block] == 0 for block in blocks)

    def publish(self, block: int, key: bytes) -> None:
        """Make a full block findable.  Of two blocks with one key the first stays the one that is found."""
        assert self._num_refs[block] > 0, f"block {block} is published while nobody owns it"
        if self.prefix_cache and key not in self._index and block not in self._keys:
            self._keys[block] = key
            self._index[key] = block

    def unpublish(self, blocks: Iterable[int]) -> None:
        """What stands in these may be wrong: nobody finds them any more.  Who shares them reads on."""
        for block in blocks:
            self._forget(block)

    def _forget(self, block: int) -> None:
        if (key := self._keys.pop(block, None)) is not None:
            del self._index[key]

    # --- claims of lanes -------------------------------------------------------------------------
    def num_admittable(self, lane: Hashable) -> int:
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

    def claim(self, lane: Hashable, num_blocks: int) -> None:
        """The lane's head of line lacks this many blocks.  A standing claim keeps its age."""
        self._claims[lane] = num_blocks

    def unclaim(self, lane: Hashable) -> None:
        self._claims.pop(lane, None)

    # --- integrity -------------------------------------------------------------------------------
    def check(self, owners: Iterable[Sequence[int]] | None = None) -> None:
        """Raise ``AssertionError`` unless every count agrees; with the block lists of all owners, also with these."""
        free = {block for block, refs in enumerate(self._num_refs) if refs == 0}
        assert all(refs >= 0 for refs in self._num_refs), "negative reference count"
        assert free == set(self._free), f"free list and counts differ on {sorted(free ^ set(self._free))}"
        assert {key: block for block, key in self._keys.items()} == self._index, "the prefix index is torn"
        assert self.prefix_cache or not self._index, "findable blocks without a prefix cache"
        is_findable = [block in self._keys for block in self._free]
        assert is_findable == sorted(is_findable), "a findable block would be handed out before one that isn't"
        assert all(0 < num_blocks <= self.num_blocks for num_blocks in self._claims.values()), "a claim can't be met"
        if owners is not None:
            counted = [0] * self.num_blocks
            for blocks in owners:
                assert len(set(blocks)) == len(blocks), "a block stands twice in one list"
                for block in blocks:
                    counted[block] += 1
            assert counted == self._num_refs, "reference counts differ from the owners' lists"
