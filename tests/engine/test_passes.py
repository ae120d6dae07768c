"""A forward pass that raises: whose fault it was is found out, and a broken runner is told from a bad row."""

import math

import pytest

from everystep.engine.passes import Passes
from everystep.messages import Abort
from everystep.runner.fake import FakeRunner, generate
from everystep.types import FinishReason

LANES = ["static", "per_token", "continuous"]
VOCAB = 1000


class Breaks(FakeRunner):
    """Raises where a pass holds one of ``bad``, or more than ``max_rows`` rows."""

    def __init__(self, bad=(), max_rows=math.inf, is_repeatable=True):
        super().__init__(block_size=4)
        self.bad, self.max_rows, self.is_repeatable, self.passes = set(bad), max_rows, is_repeatable, []

    def run(self, plan):
        ids = [row.sequence.sequence_id for row in plan.rows]
        self.passes.append(ids)
        result = super().run(plan)  # keys and values are written whatever becomes of the pass
        if self.bad & set(ids) or len(ids) > self.max_rows:
            raise RuntimeError("the kernel is broken")
        return result


class BrokenForGood(Breaks):
    """As a GPU after an illegal access: from the first failure on nothing passes any more."""

    def run(self, plan):
        if len(self.passes) > 2:
            raise RuntimeError("an illegal memory access was encountered")
        return super().run(plan)


def filled(bench, policy, names, **params):
    for i, name in enumerate(names):
        bench.submit(name, policy, prompt=(i, i + 1, i + 2), **params)
    return bench


@pytest.mark.parametrize("policy", LANES)
def test_the_one_row_for_which_a_pass_raises_fails_alone_and_the_others_get_their_very_tokens(make_core, policy):
    names = [f"s{i}" for i in range(4)]
    bench = filled(make_core(runner=Breaks({"s2"})), policy, names).run()
    assert bench.ends_of("s2") == [FinishReason.FAILED]
    (error,) = [event.error for event in bench.events if event.sequence_id == "s2"]
    assert error == "the forward pass failed: RuntimeError: the kernel is broken"
    for i in (0, 1, 3):
        assert bench.tokens_of(f"s{i}") == generate((i, i + 1, i + 2), 4, VOCAB)
    assert bench.pool.num_used_blocks == 0


@pytest.mark.parametrize("num_rows", [2, 3, 5, 16, 33, 64])
def test_one_row_at_fault_is_found_in_twice_and_two_in_four_times_the_logarithm_of_the_rows(make_core, num_rows):
    level = math.ceil(math.log2(num_rows))
    for bad, bound in (({0}, 2), ({num_rows // 2}, 2), ({num_rows - 1}, 2), ({0, num_rows - 1}, 4), ({0, 1}, 4)):
        runner = Breaks({f"s{i}" for i in bad})
        bench = filled(make_core(runner=runner), "continuous", [f"s{i}" for i in range(num_rows)])
        bench.step()
        assert {event.sequence_id for event in bench.events if event.finish_reason} == runner.bad
        assert len(bench.events) == num_rows, "each has its token or its end"
        probe = num_rows == len(bad)
        assert len(runner.passes) <= 1 + bound * level + probe


def test_a_third_row_at_fault_costs_each_of_them_one_neighbour_where_the_passes_are_used_up(make_core):
    runner = Breaks({"s0", "s20", "s40"})
    bench = filled(make_core(runner=runner), "continuous", [f"s{i}" for i in range(64)])
    bench.step()
    failed = {event.sequence_id for event in bench.events if event.finish_reason}
    assert failed == {"s0", "s1", "s20", "s21", "s40", "s41"}
    assert len(runner.passes) == 1 + 4 * 6


def test_a_pass_that_is_too_large_is_computed_in_parts_and_fails_nobody(make_core):
    names = [f"s{i}" for i in range(8)]
    bench = filled(make_core(runner=Breaks(max_rows=4)), "continuous", names).run()
    for i, name in enumerate(names):
        assert bench.tokens_of(name) == generate((i, i + 1, i + 2), 4, VOCAB)
    assert bench.core.passes.num_failed == 0


def test_a_pass_of_which_not_even_a_quarter_passes_fails_its_rows_and_the_engine_goes_on(make_core):
    names = [f"s{i}" for i in range(8)]
    bench = filled(make_core(runner=Breaks(names)), "continuous", names)
    bench.step()
    assert all(bench.ends_of(name) == [FinishReason.FAILED] for name in names)
    assert len(bench.runner.passes) == 1 + 2 + 4 + 1, "the pass, its halves, its quarters, and a probe"
    bench.submit("good", "continuous")
    bench.run()
    assert bench.tokens_of("good") == generate((1, 2, 3), 4, VOCAB)
    assert bench.pool.num_used_blocks == 0


def test_a_runner_that_cant_repeat_a_pass_isnt_asked_to(make_core):
    runner = Breaks({"s1"}, is_repeatable=False)
    bench = filled(make_core(runner=runner), "static", ["s0", "s1"])
    bench.step()
    assert bench.ends_of("s0") == bench.ends_of("s1") == [FinishReason.FAILED]
    assert runner.passes == [["s0", "s1"]]


def test_bad_rows_alone_one_after_the_other_dont_make_a_runner_broken(make_core):
    bench = make_core(runner=Breaks({f"s{i}" for i in range(9)}))
    for i in range(9):
        bench.submit(f"s{i}", "continuous")
        bench.run()
        assert bench.ends_of(f"s{i}") == [FinishReason.FAILED]
    assert bench.core.passes.num_failed == 0


def test_passes_that_give_nothing_though_a_lone_token_should_pass_are_counted_until_one_gives_something(make_core):
    bench = make_core(runner=BrokenForGood())
    filled(bench, "continuous", ["a", "b", "c"]).step()
    bench.step()
    bench.step()
    for i in range(3):
        filled(bench, "continuous", [f"{i}"]).run()
        assert bench.core.passes.num_failed == 1 + i
    assert "illegal memory access" in bench.core.passes.last_failure
    bench.runner.passes.clear()
    filled(bench, "continuous", ["well"], max_tokens=1).run()
    assert bench.core.passes.num_failed == 0


def test_each_pass_is_announced_with_its_tokens(make_core):
    runner = Breaks({"s1"})
    runner.allocate(8)
    bench, sizes = make_core(runner=runner), []
    bench.core.passes = Passes(runner, lambda plan: sizes.append(plan.num_new_tokens))
    filled(bench, "continuous", ["s0", "s1"]).step()
    assert sizes == [6, 3, 3]


def test_who_left_during_a_pass_that_raised_ends_once(make_core):
    bench = filled(make_core(runner=Breaks({"s1"})), "continuous", ["s0", "s1", "s2"])
    bench.on_drain = lambda: bench.core.abort(Abort("s1", FinishReason.ABORTED))
    bench.run()
    assert bench.ends_of("s1") == [FinishReason.ABORTED]
    assert bench.tokens_of("s2") == generate((2, 3, 4), 4, VOCAB)


class Poisoned(FakeRunner):
    """``bad`` fails when its prompt is read to the end; chunks before it pass."""

    def run(self, plan):
        self.fails = {
            row.sequence.sequence_id: "the model gave no finite logits"
            for row in plan.rows
            if row.samples and row.sequence.sequence_id == "bad"
        }
        return super().run(plan)


@pytest.mark.parametrize("chunk", [64, 8])
def test_blocks_of_a_row_that_failed_are_never_found_again_not_those_of_its_earlier_chunks_either(make_core, chunk):
    bench = make_core(runner=Poisoned(block_size=4), max_num_batched_tokens=chunk, max_num_seqs=4)
    text = tuple(range(1, 31))
    bench.submit("bad", "continuous", prompt=text)
    bench.run()
    assert bench.ends_of("bad") == [FinishReason.FAILED]
    bench.submit("next", "continuous", prompt=text)
    bench.run()
    assert bench.core.lanes["continuous"].num_prefix_hit_tokens == 0
    assert bench.tokens_of("next") == generate(text, 4, VOCAB)
    bench.submit("again", "continuous", prompt=text)
    bench.run()
    assert bench.core.lanes["continuous"].num_prefix_hit_tokens == 28, "what was computed well is found"


def test_a_row_that_fails_on_a_shared_beginning_makes_it_unfindable(make_core):
    """Whether its own part or the shared one is ill isn't known: computing it anew costs little, ill blocks much."""
    bench = make_core(runner=Poisoned(block_size=4))
    text = tuple(range(1, 31))
    bench.submit("good", "continuous", prompt=text)
    bench.run()
    bench.submit("bad", "continuous", prompt=text)
    bench.run()
    assert bench.core.lanes["continuous"].num_prefix_hit_tokens == 28
    bench.submit("next", "continuous", prompt=text)
    bench.run()
    assert bench.core.lanes["continuous"].num_prefix_hit_tokens == 28
    assert bench.tokens_of("next") == bench.tokens_of("good")
