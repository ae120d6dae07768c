"""The block pool: counts, sharing, eviction order, claims, and a check that can fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from everystep.errors import ConfigError
from everystep.sched import BlockPool
from everystep.sched.prefix import block_key


def test_blocks_are_counted_from_free_to_used_and_back() -> None:
    pool = BlockPool(4, 8)
    assert (pool.num_free_blocks, pool.num_used_blocks, pool.num_tokens) == (4, 0, 32)
    blocks = pool.allocate(3)
    assert len(set(blocks)) == 3
    assert (pool.num_free_blocks, pool.num_used_blocks) == (1, 3)
    pool.release(blocks)
    assert (pool.num_free_blocks, pool.num_used_blocks) == (4, 0)


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (8, 1), (9, 2), (32, 4), (33, 4), (1000, 4)])
def test_tokens_take_whole_blocks_and_at_most_the_pool(num_tokens: int, num_blocks: int) -> None:
    assert BlockPool(4, 8).blocks_for(num_tokens) == num_blocks


def test_a_pool_without_blocks_is_refused_with_its_numbers() -> None:
    with pytest.raises(ConfigError, match="0 and 32"):
        BlockPool(0, 32)


def test_a_freed_block_is_found_again_until_it_is_given_away() -> None:
    pool = BlockPool(2, 8)
    (block,) = pool.allocate(1)
    pool.publish(block, b"key")
    pool.release([block])
    assert pool.match_prefix([b"key", b"other"]) == [block]
    other, evicted = pool.allocate(2)
    assert (other != block, evicted) == (True, block)  # the empty block went first
    assert pool.match_prefix([b"key"]) == []
    pool.check([[other], [evicted]])


def test_of_findable_blocks_the_one_freed_longest_ago_goes_first_and_the_end_of_a_text_before_its_beginning() -> None:
    pool = BlockPool(4, 8)
    old, new = pool.allocate(2), pool.allocate(2)
    for index, block in enumerate(old + new):
        pool.publish(block, bytes([index]))
    pool.release(old)
    pool.release(new)
    assert pool.allocate(4) == [old[1], old[0], new[1], new[0]]


def test_a_block_that_is_used_again_is_no_longer_next_to_go() -> None:
    pool = BlockPool(2, 8)
    first, second = pool.allocate(2)
    pool.publish(first, b"1")
    pool.publish(second, b"2")
    pool.release([first])
    pool.release([second])
    pool.share([first])
    pool.release([first])
    assert pool.allocate(1) == [second]


def test_a_shared_block_stays_used_until_its_last_owner_lets_go() -> None:
    pool = BlockPool(3, 8)
    blocks = pool.allocate(1)
    pool.publish(blocks[0], b"key")
    pool.share(blocks)
    assert pool.num_refs(blocks[0]) == 2
    pool.release(blocks)
    assert pool.num_used_blocks == 1
    assert pool.num_revived(blocks) == 0
    pool.release(blocks)
    assert pool.num_used_blocks == 0
    assert pool.num_revived(blocks) == 1


def test_of_two_blocks_with_one_content_the_first_stays_the_one_that_is_found() -> None:
    pool = BlockPool(2, 8)
    first, second = pool.allocate(2)
    pool.publish(first, b"key")
    pool.publish(second, b"key")
    assert pool.match_prefix([b"key"]) == [first]
    pool.release([second])
    assert pool.match_prefix([b"key"]) == [first]
    pool.check([[first]])


def test_without_a_prefix_cache_nothing_is_found() -> None:
    pool = BlockPool(2, 8, prefix_cache=False)
    blocks = pool.allocate(1)
    pool.publish(blocks[0], b"key")
    assert pool.match_prefix([b"key"]) == []


def test_a_block_key_depends_on_all_that_came_before() -> None:
    first, other = block_key(b"", [1, 2]), block_key(b"", [1, 3])
    assert block_key(first, [7, 8]) != block_key(other, [7, 8])
    assert block_key(first, [7, 8]) == block_key(block_key(b"", [1, 2]), [7, 8])
    assert block_key(b"", [1, 2, 3]) != block_key(block_key(b"", [1]), [2, 3])


def test_releasing_twice_is_a_bug_that_is_caught() -> None:
    pool = BlockPool(2, 8)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(blocks)


def test_the_check_sees_a_leaked_block() -> None:
    pool = BlockPool(2, 8)
    kept, _leaked = pool.allocate(2)
    pool.check()
    with pytest.raises(AssertionError, match="differ from the owners"):
        pool.check([[kept]])


def test_an_older_claim_holds_blocks_back_from_others_and_sees_all_itself() -> None:
    pool = BlockPool(10, 8)
    pool.allocate(4)
    pool.claim("old", 5)
    pool.claim("young", 3)
    assert pool.num_admittable("old") == 6
    assert pool.num_admittable("young") == 1
    assert pool.num_admittable("third") == 0  # 6 - 5 - 3, never below nothing
    pool.claim("old", 2)  # a changed need keeps its age
    assert pool.num_admittable("young") == 4
    pool.unclaim("old")
    assert pool.num_admittable("young") == 6
    assert pool.num_admittable("old") == 3


class PoolMachine(RuleBasedStateMachine):
    """Random owners take, share, publish and let go; a plain dict of contents says what must be findable."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(6, 4)
        self.owners: list[list[int]] = []
        self.content: dict[int, bytes] = {}
        self.next_key = 0

    @precondition(lambda self: self.pool.num_free_blocks)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        blocks = self.pool.allocate(data.draw(st.integers(1, self.pool.num_free_blocks)))
        assert all(block not in owner for block in blocks for owner in self.owners)
        for block in blocks:
            self.content.pop(block, None)
        self.owners.append(blocks)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(data.draw(st.sampled_from(self.owners))))
        if block not in self.content:
            self.content[block] = str(self.next_key).encode()
            self.next_key += 1
            self.pool.publish(block, self.content[block])

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.content.values())))
        blocks = self.pool.match_prefix([key])
        self.pool.share(blocks)
        self.owners.append(blocks)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.pool.release(self.owners.pop(data.draw(st.integers(0, len(self.owners) - 1))))

    @invariant()
    def books_agree(self) -> None:
        self.pool.check(self.owners)
        assert self.pool.num_used_blocks == len({block for owner in self.owners for block in owner})
        for block, key in self.content.items():
            assert self.pool.match_prefix([key]) == [block]


TestPool = PoolMachine.TestCase


@given(needs=st.lists(st.integers(1, 8), min_size=1, max_size=4), num_free=st.integers(0, 8))
def test_the_oldest_claim_sees_all_free_blocks_and_together_no_more_is_promised_than_there_is(
    needs: list[int], num_free: int
) -> None:
    pool = BlockPool(8, 1)
    pool.allocate(8 - num_free)
    for lane, need in enumerate(needs):
        pool.claim(lane, need)
    assert pool.num_admittable(0) == num_free
    for lane in range(1, len(needs) + 1):
        assert pool.num_admittable(lane) == max(0, num_free - sum(needs[:lane]))
