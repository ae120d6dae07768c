"""Schedules that were computed by hand: every step takes a second unless said otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.analysis.load import Arrival, closed
from everystep.analysis.simulator import Machine, simulate
from everystep.config import Settings
from everystep.errors import ConfigError, UnsupportedOption

POLICIES = ("static", "per_token", "continuous")
FOUR_SEATS = {"static_batch_size": 4, "per_token_batch_size": 4, "max_num_seqs": 4}


class Schedule:
    """A simulated load and its steps: who sat in which, when it began."""

    def __init__(self, load, policy, *, aborts=None, step_s=lambda plan: 1.0, machine=None, **settings):
        sizes = {"num_blocks": 64, "block_size": 16, "max_model_len": 512} | (machine or {})
        self.rows: list[list[int]] = []
        self.new_tokens: list[list[int]] = []
        self.held: list[list[int]] = []
        self.starts_s: list[float] = []
        self.outcome = simulate(
            load,
            Settings(**(FOUR_SEATS | settings)),
            policy,
            Machine(step_s, **sizes),
            aborts=aborts,
            on_step=self._note,
        )

    def _note(self, plan, start_s, end_s):
        self.rows.append([int(row.sequence.sequence_id) for row in plan.rows])
        self.new_tokens.append([row.num_new_tokens for row in plan.rows])
        self.held.append([int(row.sequence.sequence_id) for row in plan.held])
        self.starts_s.append(start_s)

    @property
    def widths(self):
        return [len(rows) for rows in self.rows]

    @property
    def ttfts_s(self):
        return [answer.ttft_s for answer in self.outcome.answers]

    @property
    def e2es_s(self):
        return [answer.e2e_s for answer in self.outcome.answers]


def outputs(*counts):
    return [Arrival(0.0, 5, count) for count in counts]


# --- rounds against tokens -----------------------------------------------------------------------
def test_six_prompts_on_four_seats_run_as_rounds_of_four_and_two():
    schedule = Schedule(closed(6, 5, 3), "static")
    assert schedule.rows == [[0, 1, 2, 3]] * 3 + [[4, 5]] * 3
    assert schedule.outcome.wall_s == 6.0
    assert schedule.ttfts_s == [1, 1, 1, 1, 4, 4]
    assert schedule.e2es_s == [3, 3, 3, 3, 6, 6]
    assert schedule.outcome.seat_steps == {"working": 18, "held": 0, "empty": 6}


def test_continuous_beats_static_by_exactly_twenty_to_eleven_where_one_long_answer_holds_each_round():
    load = outputs(10, 1, 1, 1, 10, 1, 1, 1)
    static, continuous = Schedule(load, "static"), Schedule(load, "continuous")
    assert static.outcome.wall_s == 20.0  # two rounds, each as long as its longest
    assert static.outcome.seat_steps == {"working": 26, "held": 54, "empty": 0}
    assert continuous.outcome.wall_s == 11.0  # the second long one takes a seat that frees after the first step
    assert continuous.rows == [[0, 1, 2, 3], [0, 4, 5, 6], [0, 4, 7], *[[0, 4]] * 7, [4]]
    assert continuous.outcome.seat_steps == {"working": 26, "held": 0, "empty": 18}
    assert continuous.e2es_s == [10, 1, 1, 1, 11, 2, 2, 3]


def test_continuous_gains_nothing_where_all_answers_are_equally_long():
    load = closed(16, 5, 7)
    walls_s = {policy: Schedule(load, policy).outcome.wall_s for policy in POLICIES}
    assert walls_s == {"static": 28.0, "per_token": 28.0, "continuous": 28.0}


def test_per_token_fills_a_seat_before_the_next_token():
    schedule = Schedule(outputs(3, 1, 3, 3, 2), "per_token")
    assert schedule.rows == [[0, 1, 2, 3], [0, 4, 2, 3], [0, 4, 2, 3]]


# --- who is in the line when ---------------------------------------------------------------------
@pytest.mark.parametrize(("policy", "second_starts"), [("static", 3), ("per_token", 1), ("continuous", 1)])
@pytest.mark.parametrize("at_s", [0.25, 0.5, 1.0])
def test_who_comes_during_a_pass_is_in_line_for_the_next_plan_but_never_joins_a_round(policy, second_starts, at_s):
    schedule = Schedule([Arrival(0.0, 5, 3), Arrival(at_s, 5, 3)], policy)
    first_step = next(index for index, rows in enumerate(schedule.rows) if 1 in rows)
    assert first_step == second_starts


def test_an_idle_machine_starts_when_somebody_comes():
    schedule = Schedule([Arrival(2.5, 5, 1), Arrival(10.0, 5, 2)], "continuous")
    assert schedule.starts_s == [2.5, 10.0, 11.0]
    assert schedule.outcome.wall_s == 12.0


def test_a_round_waits_for_company_as_long_as_it_was_told_and_not_when_it_is_full():
    early, late = Arrival(1.0, 5, 1), Arrival(2.5, 5, 1)
    waited = Schedule([early, late], "static", static_max_wait=2.0)
    assert (waited.starts_s, waited.rows) == ([3.0], [[0, 1]])
    full = Schedule([early, late, late, late], "static", static_max_wait=2.0)
    assert (full.starts_s, full.rows) == ([2.5], [[0, 1, 2, 3]])


def test_a_burst_larger_than_the_seats_takes_rounds_and_the_next_burst_joins_whichever_round_is_next():
    bursts = [[Arrival(at_s, 5, 2)] * 6 for at_s in (0.0, 3.0)]
    late = Schedule(bursts[0] + bursts[1], "static")
    assert late.rows[::2] == [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11]]
    assert late.ttfts_s == [1] * 4 + [3] * 2 + [2] * 4 + [4] * 2
    soon = Schedule(bursts[0] + [Arrival(1.0, 5, 2)] * 6, "static")
    assert soon.rows[::2] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


# --- prompts, budget, blocks ---------------------------------------------------------------------
def test_a_long_prompt_is_read_in_chunks_within_the_budget_beside_a_decoding_row():
    load = [Arrival(0.0, 4, 5), Arrival(0.5, 20, 2)]
    schedule = Schedule(load, "continuous", max_num_batched_tokens=9)
    assert schedule.new_tokens == [[4], [1, 8], [1, 8], [1, 4], [1, 1]]
    assert schedule.ttfts_s == [1.0, 3.5]


def test_the_step_cost_sees_the_plan():
    schedule = Schedule(closed(2, 10, 3), "continuous", step_s=lambda plan: 0.5 + plan.num_new_tokens / 4)
    assert schedule.starts_s == [0.0, 5.5, 6.5]
    assert schedule.outcome.wall_s == 7.5


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_who_loses_the_last_block_waits_and_reads_again_what_the_cache_lost(prefix_cache):
    """Two prompts of 6 on 4 blocks of 4: both need a third block for their ninth token, and none is free."""
    load = closed(2, 6, 6)
    machine = {"num_blocks": 4, "block_size": 4}
    schedule = Schedule(load, "continuous", machine=machine, prefix_cache=prefix_cache)
    assert schedule.rows == [[0, 1]] * 3 + [[0]] * 3 + [[1]] * 3
    # Its first block may still be found: the longest-known beginning is given away last.
    assert schedule.new_tokens[6] == ([5] if prefix_cache else [9])
    assert schedule.e2es_s == [6, 9]
    roomy = Schedule(load, "continuous", machine={"num_blocks": 6, "block_size": 4})
    assert roomy.e2es_s == [6, 6]


def test_the_static_lane_reserves_every_members_worst_case():
    machine = {"num_blocks": 4, "block_size": 4}
    schedule = Schedule(closed(3, 6, 3), "static", machine=machine)  # 8 tokens are computed: two blocks each
    assert schedule.rows == [[0, 1]] * 3 + [[2]] * 3


def test_no_two_prompts_share_a_beginning():
    load = closed(50, 64, 2)
    schedule = Schedule(load, "continuous", max_num_seqs=1, machine={"num_blocks": 4096})
    assert [tokens for tokens in schedule.new_tokens if tokens != [1]] == [[64]] * 50


def test_an_answer_that_outgrows_the_cache_ends_early_and_is_not_whole():
    schedule = Schedule([Arrival(0.0, 10, 20)], "continuous", machine={"num_blocks": 4, "block_size": 4})
    (answer,) = schedule.outcome.answers
    assert (answer.num_tokens, answer.error, answer.is_whole) == (7, None, False)  # 16 in the cache, and one more


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("unfit", "words"),
    [
        (Arrival(0.5, 60, 5), "prompt leaves room for 4 of 64"),
        (Arrival(0.5, 64, 1), "the context holds 64"),
        (Arrival(0.5, 49, 1), "the KV cache holds 48"),
        (Arrival(0.5, 0, 1), "the prompt is empty"),
        (Arrival(0.5, 5, 0), "max_tokens=0 generates nothing"),
    ],
)
def test_what_can_never_fit_is_an_answer_that_says_why_and_others_are_served(policy, unfit, words):
    load = [Arrival(0.0, 5, 2), unfit, Arrival(1.0, 5, 2)]
    machine = {"num_blocks": 3, "block_size": 16, "max_model_len": 64}
    first, refused, last = Schedule(load, policy, machine=machine).outcome.answers
    assert refused.error.startswith("400: ")
    assert words in refused.error
    assert refused.num_tokens == 0
    assert first.is_whole
    assert last.is_whole


# --- what clients see ----------------------------------------------------------------------------
def test_a_token_is_at_the_client_after_the_way_back_of_a_sequence_that_was_in_line_after_the_way_there():
    load = [Arrival(1.0, 5, 3), Arrival(1.25, 5, 1)]
    schedule = Schedule(load, "continuous", machine={"submit_s": 0.25, "deliver_s": 0.5})
    assert schedule.starts_s == [1.25, 2.25, 3.25]
    first, second = schedule.outcome.answers
    assert first.token_times_s == [2.75, 3.75, 4.75]
    assert (first.ttft_s, first.tpot_s, first.e2e_s) == (1.75, 1.0, 3.75)
    assert (second.ttft_s, second.tpot_s, second.e2e_s) == (2.5, None, 2.5)
    assert schedule.outcome.wall_s == 4.75


# --- who leaves ----------------------------------------------------------------------------------
def test_a_client_that_leaves_during_a_pass_gets_no_token_of_it_and_its_seat_goes_to_the_next():
    schedule = Schedule(outputs(9, 9), "continuous", aborts={0: 1.5}, max_num_seqs=1)
    left, stayed = schedule.outcome.answers
    assert (left.error, left.num_tokens) == ("aborted", 1)
    assert schedule.rows[:3] == [[0], [0], [1]]
    assert stayed.is_whole


def test_who_leaves_a_round_keeps_its_seat_held_till_the_rounds_end():
    schedule = Schedule(outputs(4, 4, 1), "static", aborts={1: 2.0})
    assert schedule.rows == [[0, 1, 2], [0, 1], [0], [0]]
    assert schedule.held == [[], [2], [1, 2], [1, 2]]


def test_who_leaves_the_line_was_never_served_and_who_is_gone_cannot_leave():
    schedule = Schedule(outputs(2, 2), "continuous", aborts={1: 1.0, 0: 50.0}, max_num_seqs=1)
    done, gone = schedule.outcome.answers
    assert done.is_whole
    assert (gone.error, gone.num_tokens) == ("aborted", 0)
    assert schedule.rows == [[0], [0]]


# --- every load ----------------------------------------------------------------------------------
arrivals = st.builds(
    Arrival,
    at_s=st.integers(0, 40).map(lambda halves: halves / 2),
    prompt_tokens=st.integers(1, 30),
    output_tokens=st.integers(1, 12),
)
loads = st.lists(arrivals, min_size=1, max_size=25).map(lambda load: sorted(load, key=lambda each: each.at_s))


@given(load=loads, policy=st.sampled_from(POLICIES), num_blocks=st.integers(6, 30), prefix_cache=st.booleans())
def test_every_arrival_has_exactly_one_answer_whole_or_with_its_cause(load, policy, num_blocks, prefix_cache):
    machine = {"num_blocks": num_blocks, "block_size": 4, "max_model_len": 36}
    schedule = Schedule(load, policy, machine=machine, prefix_cache=prefix_cache)
    answers = schedule.outcome.answers
    assert [answer.arrival for answer in answers] == load
    for answer in answers:
        is_cut = answer.error is None and answer.arrival.prompt_tokens + answer.num_tokens == 4 * num_blocks + 1
        assert (answer.error is not None and answer.num_tokens == 0) or answer.is_whole or is_cut
    assert schedule.outcome.seat_steps["working"] == sum(schedule.widths)
    assert sum(schedule.outcome.seat_steps.values()) == 4 * len(schedule.widths)
    assert all(answer.ttft_s >= 1.0 for answer in answers if answer.error is None)


def test_a_load_of_nobody_takes_no_time():
    assert Schedule([], "static").outcome.wall_s == 0.0


def test_a_policy_that_is_not_ours_is_refused_by_name():
    with pytest.raises(ConfigError, match="policy='vllm' must be one of static, per_token, continuous"):
        Schedule(closed(1, 5, 1), "vllm")


def test_a_load_out_of_order_is_refused():
    with pytest.raises(ConfigError, match="in order of time"):
        Schedule([Arrival(1.0, 5, 1), Arrival(0.0, 5, 1)], "static")


# --- a line with a bound -------------------------------------------------------------------------
def bounded(load, **settings):
    machine = Machine(lambda plan: 1.0, 64, 16, 512)
    return simulate(load, Settings(**(FOUR_SEATS | settings)), "static", machine, is_line_bounded=True).answers


def test_who_finds_the_line_full_is_turned_away_and_who_comes_after_a_start_is_not():
    """One seat, three seconds an answer: 1 and 2 wait, 3 is turned away, 4 comes after 1 got the seat at 3."""
    load = [Arrival(at_s, 5, 3) for at_s in (0.0, 1.5, 1.5, 2.0, 4.25)]
    answers = bounded(load, static_batch_size=1, max_queue=2)
    assert [answer.is_whole for answer in answers] == [True, True, True, False, True]
    assert answers[3].error == "429: 2 sequences wait; the line holds 2 (--max-queue)"


def test_a_start_is_known_only_when_its_step_has_ended():
    load = [Arrival(at_s, 5, 3) for at_s in (0.0, 0.5, 1.0, 1.25)]
    answers = bounded(load, static_batch_size=1, max_queue=1)
    # The first got its seat at 0, which is heard of at 1: until then it counts as waiting.
    assert [answer.is_whole for answer in answers] == [True, False, False, True]


def test_the_line_has_a_bound_on_tokens_too_and_who_cannot_fit_takes_no_place_in_it():
    load = [Arrival(0.0, 5, 3), Arrival(1.25, 700, 1), Arrival(1.25, 60, 1), Arrival(1.25, 41, 1), Arrival(1.25, 40, 1)]
    answers = bounded(load, static_batch_size=1, max_queue_tokens=100)
    assert "the line holds 100 (--max-queue-tokens)" in answers[1].error
    assert "60 prompt tokens wait" in answers[3].error
    assert [answer.is_whole for answer in answers] == [True, False, True, False, True]


def test_the_line_of_a_closed_load_is_as_long_as_it_must_be():
    assert Schedule(closed(300, 5, 1), "static", max_queue=1).outcome.wall_s == 75.0


@pytest.mark.parametrize("name", ["queue_timeout", "request_timeout"])
def test_deadlines_are_refused_not_ignored(name):
    with pytest.raises(UnsupportedOption, match=f"{name}=5: deadlines aren't simulated"):
        Schedule(closed(1, 5, 1), "static", **{name: 5.0})
