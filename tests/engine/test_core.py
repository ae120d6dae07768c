"""The core loop by hand-computed schedules, on the fake runner."""

import pytest

from everystep.messages import Abort
from everystep.runner.fake import FakeRunner, generate
from everystep.types import FinishReason

LANES = ["static", "per_token", "continuous"]


def row_counts(bench):
    return [len([row for row in record.rows if row.phase != "held"]) for record in bench.records]


def test_six_prompts_on_four_seats_run_as_rounds_of_four_and_two(make_core):
    bench = make_core()
    for i in range(6):
        bench.submit(f"s{i}", "static", max_tokens=3)
    bench.run()
    assert row_counts(bench) == [4, 4, 4, 2, 2, 2]
    assert [row.sequence_id for row in bench.records[3].rows] == ["s4", "s5"]


def test_requests_of_two_and_three_that_wait_behind_a_round_are_taken_as_four_and_one(make_core):
    bench = make_core()
    for i in range(4):
        bench.submit(f"first-{i}", "static", max_tokens=2)
    bench.step()
    for i in range(2):
        bench.submit(f"two-{i}", "static", max_tokens=2, request="two")
    for i in range(3):
        bench.submit(f"three-{i}", "static", max_tokens=2, request="three")
    bench.run()
    assert row_counts(bench) == [4, 4, 4, 4, 1, 1]
    assert [row.request_id for row in bench.records[2].rows] == ["two", "two", "three", "three"]
    assert [row.sequence_id for row in bench.records[4].rows] == ["three-2"]


def test_a_prompt_that_comes_while_a_round_runs_waits_for_the_round_though_seats_are_held(make_core):
    bench = make_core()
    bench.submit("short", "static", max_tokens=1)
    bench.submit("long", "static", max_tokens=4)
    bench.step()
    bench.submit("late", "static")
    bench.step()
    assert [row.phase for row in bench.records[1].rows] == ["held", "decode"]
    (waiting,) = bench.waiting[1]
    assert (waiting.sequence_id, waiting.why) == ("late", "round_running")


def test_a_round_of_5_5_5_and_60_holds_three_seats_for_55_steps_and_continuous_holds_none(make_core):
    static, continuous = make_core(), make_core()
    for bench, policy in ((static, "static"), (continuous, "continuous")):
        for i, length in enumerate((5, 5, 5, 60)):
            bench.submit(f"s{i}", policy, max_tokens=length)
        bench.run()
    held = [sum(row.phase == "held" for row in record.rows) for record in static.records]
    assert held == [0] * 5 + [3] * 55
    assert not any(row.phase == "held" for record in continuous.records for row in record.rows)
    assert len(continuous.records) == 60


def test_shape_is_the_rectangle_that_a_padded_batch_would_have_been(make_core):
    bench = make_core()
    for i, length in enumerate((2, 5, 3, 4)):
        bench.submit(f"s{i}", "static", prompt=range(1, length + 1), max_tokens=2)
    bench.run()
    assert [record.shape for record in bench.records] == [(4, 5), (4, 1)]


def test_lanes_with_work_take_turns_a_step_each(make_core):
    bench = make_core()
    for policy in LANES:
        bench.submit(policy, policy, max_tokens=2)
    bench.run()
    assert [record.policy for record in bench.records] == LANES * 2


@pytest.mark.parametrize("policy", LANES)
def test_a_pass_that_raises_fails_its_rows_and_the_engine_goes_on(make_core, policy):
    class Breaks(FakeRunner):
        def run(self, plan):
            if any(row.sequence.sequence_id == "bad" for row in plan.rows):
                raise RuntimeError("the kernel is broken")
            return super().run(plan)

    bench = make_core(runner=Breaks(block_size=4))
    bench.submit("bad", policy)
    bench.run()
    bench.submit("good", policy)
    bench.run()
    assert bench.ends_of("bad") == [FinishReason.FAILED]
    assert "the kernel is broken" in bench.events[0].error
    assert bench.tokens_of("good") == generate((1, 2, 3), 4, 1000)
    assert bench.pool.num_used_blocks == 0


@pytest.mark.parametrize("policy", LANES)
def test_a_row_that_fails_fails_alone(make_core, policy):
    bench = make_core(runner=FakeRunner(block_size=4, fails={"bad": "its logits aren't finite"}))
    for name in ("a", "bad", "b"):
        bench.submit(name, policy)
    bench.run()
    assert bench.ends_of("bad") == [FinishReason.FAILED]
    for name in ("a", "b"):
        assert bench.ends_of(name) == [FinishReason.LENGTH]
        assert bench.tokens_of(name) == generate((1, 2, 3), 4, 1000)


@pytest.mark.parametrize("policy", LANES)
def test_who_leaves_during_the_pass_ends_once_and_frees_its_blocks_in_that_step(make_core, policy):
    bench = make_core()
    bench.submit("stays", policy, max_tokens=6)
    bench.submit("leaves", policy, max_tokens=6)
    bench.step()
    used = bench.pool.num_used_blocks
    bench.on_drain = lambda: bench.core.abort(Abort("leaves", FinishReason.ABORTED))
    bench.step()
    bench.on_drain = lambda: None
    assert bench.pool.num_used_blocks < used
    bench.run()
    assert bench.ends_of("leaves") == [FinishReason.ABORTED]
    assert bench.tokens_of("stays") == generate((1, 2, 3), 6, 1000)


@pytest.mark.parametrize("policy", LANES)
def test_who_leaves_while_waiting_never_runs(make_core, policy):
    bench = make_core(max_num_seqs=1, static_batch_size=1, per_token_batch_size=1)
    bench.submit("first", policy)
    bench.submit("waits", policy)
    bench.step()
    bench.core.abort(Abort("waits", FinishReason.TIMEOUT))
    bench.run()
    assert bench.ends_of("waits") == [FinishReason.TIMEOUT]
    assert not any(row.sequence_id == "waits" for record in bench.records for row in record.rows)


def test_a_submit_that_can_never_fit_becomes_a_failed_event_with_the_numbers(make_core):
    bench = make_core(num_blocks=2)
    bench.submit("huge", "continuous", prompt=range(1, 10))
    (event,) = bench.core.take_events()
    assert event.finish_reason is FinishReason.FAILED
    assert "the prompt has 9 tokens; the KV cache holds 8" in event.error


def test_a_lone_sequence_that_outgrows_the_cache_ends_with_length_and_the_engine_lives(make_core):
    bench = make_core(num_blocks=2)  # 8 tokens
    for policy in LANES:
        bench.submit(policy, policy, max_tokens=100)
        bench.run()
        assert bench.ends_of(policy) == [FinishReason.LENGTH]
        assert bench.tokens_of(policy) == generate((1, 2, 3), 6, 1000)  # 3 + 5 computed, and one more drawn


def test_a_static_lane_that_waits_for_company_names_the_time_when_it_starts_without(make_core):
    bench = make_core(static_max_wait=2.0)
    bench.time_s = 10.0
    bench.submit("alone", "static", max_tokens=1)
    assert bench.step() is None
    assert bench.core.next_ready_s() == 12.0
    bench.time_s = 12.0
    assert bench.step() is not None


def test_an_unchanged_line_is_not_encoded_again(make_core):
    bench = make_core(static_batch_size=1)
    bench.submit("runs", "static", max_tokens=4)
    bench.submit("waits", "static")
    assert bench.step().waiting is not None
    bench.step()
    assert bench.step().waiting is None
