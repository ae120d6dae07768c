"""Pages of the KV cache: who holds which, which hold a known beginning of a text, which are given away next.

Owns block ids, reference counts and the prefix index.  Ignorant of tensors, sequences and policies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from everystep.errors import ConfigError
from everystep.sched.claims import Claims


class BlockPool:
    """``num_blocks`` pages of ``block_size`` tokens, shared by all lanes.

    A block is *used* while its reference count is positive, else it lies in the free list.  A full block may be
    *published* under a key that stands for its tokens and all before them; it then stays findable after it was
    freed, until it is allocated anew.  The free list is the eviction order: blocks without content worth keeping
    first, then the one freed longest ago.
    """

    def __init__(self, num_blocks: int, block_size: int = 32, prefix_cache: bool = True) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ConfigError(f"a pool of {num_blocks} blocks of {block_size} tokens: both must be at least 1")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.claims = Claims()
        self._num_references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._key_of: dict[int, bytes] = {}  # published block → key
        self._block_of: dict[bytes, int] = {}  # the same the other way round

    # --- counting --------------------------------------------------------------------------------
    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    @property
    def num_cached_blocks(self) -> int:
        """Published blocks, used or free."""
        return len(self._key_of)

    @property
    def num_tokens(self) -> int:
        """Tokens that the whole pool holds: no sequence can be longer."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that ``num_tokens`` tokens take, at most the whole pool."""
        return min(-(-num_tokens // self.block_size), self.num_blocks)

    def num_free_for(self, lane: object) -> int:
        """Free blocks that an admission of ``lane`` may take: what older claims of other lanes leave."""
        return max(0, len(self._free) - self.claims.num_before(lane))

    def num_references(self, block_id: int) -> int:
        return self._num_references[block_id]

    # --- holding ---------------------------------------------------------------------------------
    def allocate(self, num_blocks: int) -> list[int]:
        """Blocks with nothing in them for one holder.  What was published in them is forgotten."""
        assert num_blocks <= len(self._free), f"{num_blocks} blocks asked, {len(self._free)} free"
        block_ids = [self._free.popitem(last=False)[0] for _ in range(num_blocks)]
        for block_id in block_ids:
            self._num_references[block_id] = 1
            if (key := self._key_of.pop(block_id, None)) is not None:
                del self._block_of[key]
        return block_ids

    def free(self, block_ids: Sequence[int]) -> None:
        """One holder gives its blocks back, given in the order of the text.

        The text's end goes first into the free list: it is the least likely to be found again, and a beginning
        is of use without the end, but not the other way round.
        """
        for block_id in reversed(block_ids):
            self._num_references[block_id] -= 1
            assert self._num_references[block_id] >= 0, f"block {block_id} was freed too often"
            if self._num_references[block_id] == 0:
                self._free[block_id] = None
                if block_id not in self._key_of:
                    self._free.move_to_end(block_id, last=False)

    # --- sharing ---------------------------------------------------------------------------------
    def match_prefix(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks that hold the longest known beginning; :meth:`share` them before anything is allocated."""
        block_ids: list[int] = []
        for key in keys:
            if (block_id := self._block_of.get(key)) is None:
                break
            block_ids.append(block_id)
        return block_ids

    def num_free_among(self, block_ids: Iterable[int]) -> int:
        """How many of these sharing would take out of the free list."""
        return sum(self._num_references[block_id] == 0 for block_id in block_ids)

    def share(self, block_ids: Iterable[int]) -> None:
        """One more holder for each of these.  A holder of a shared block reads it and never writes."""
        for block_id in block_ids:
            self._num_references[block_id] += 1
            self._free.pop(block_id, None)

    def publish(self, block_id: int, key: bytes) -> None:
        """Let the used, full block be found under ``key``.  The first of two equal blocks stays the one found."""
        assert self._num_references[block_id] > 0, f"block {block_id} is published while nobody holds it"
        if self.prefix_cache and key not in self._block_of and block_id not in self._key_of:
            self._key_of[block_id] = key
            self._block_of[key] = block_id

    # --- checking --------------------------------------------------------------------------------
    def check(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Raise ``AssertionError`` if the books don't agree; with ``holders``, also if their blocks aren't all used."""
        unused = {block_id for block_id, count in enumerate(self._num_references) if count == 0}
        assert all(count >= 0 for count in self._num_references), "a block was freed too often"
        assert len(self._num_references) == self.num_blocks
        assert set(self._free) == unused, "the free list isn't the blocks without holder"
        assert {key: block_id for block_id, key in self._key_of.items()} == self._block_of, "prefix index is torn"
        assert self.prefix_cache or not self._key_of, "published without a prefix cache"
        self._check_eviction_order()
        if holders is not None:
            self._check_holders(holders)

    def _check_eviction_order(self) -> None:
        is_cached = [block_id in self._key_of for block_id in self._free]
        assert is_cached == sorted(is_cached), "a findable block would be given away before an empty one"

    def _check_holders(self, holders: Iterable[Sequence[int]]) -> None:
        counts = [0] * self.num_blocks
        for block_ids in holders:
            assert len(set(block_ids)) == len(block_ids), "a sequence holds a block twice"
            for block_id in block_ids:
                counts[block_id] += 1
        assert counts == self._num_references, "reference counts aren't the holders"
