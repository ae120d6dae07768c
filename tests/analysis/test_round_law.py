"""The static round law: by hand, and as a special case of the simulator."""

from __future__ import annotations

import pytest

from analysis.cost_steps import PRICES
from everystep.analysis.cost import CostModel
from everystep.analysis.load import closed
from everystep.analysis.round_law import Round, round_law_s, round_s
from everystep.analysis.simulator import Machine, simulate
from everystep.config import Settings
from everystep.errors import ConfigError

COST = CostModel(PRICES)


def test_a_round_of_two_is_the_sum_of_its_steps_by_hand() -> None:
    read = 0.018 + 0.004 + 0.010 + 3 * 0.005 + 2 * 0.0045 + 2 * 0.0008 + 0.0004 + 6 * 5e-6 + 12 * 1e-6
    second = 0.018 + 0.004 + 0.010 + 0.005 + 2 * 0.0008 + 0.0004 + 8 * 5e-6 + 8 * 1e-6
    third = 0.018 + 0.004 + 0.005 + 2 * 0.0008 + 0.0004 + 10 * 5e-6 + 10 * 1e-6
    assert round_s(COST, Round(2, 3, 3)) == pytest.approx(read + second + third)


@pytest.mark.parametrize(("num_prompts", "num_rounds"), [(1, 1), (4, 1), (5, 2), (16, 4), (63, 16), (64, 16)])
def test_the_law_counts_rounds_as_the_write_up_does(num_prompts: int, num_rounds: int) -> None:
    one = Round(4, 6, 20)
    assert round_law_s(num_prompts, COST, one) == pytest.approx(num_rounds * round_s(COST, one))


@pytest.mark.parametrize("batch_size", [2, 4, 7])
@pytest.mark.parametrize("num_rounds", [1, 3])
def test_for_equal_prompts_in_full_rounds_the_simulator_says_what_the_law_says(
    batch_size: int, num_rounds: int
) -> None:
    num = batch_size * num_rounds
    machine = Machine(COST.in_order(is_one_request=True), num_blocks=1000, block_size=16, max_model_len=1000)
    outcome = simulate(closed(num, 6, 20), Settings(static_batch_size=batch_size), "static", machine)
    assert outcome.wall_s == pytest.approx(round_law_s(num, COST, Round(batch_size, 6, 20)))


def test_a_last_round_that_is_not_full_makes_the_law_an_upper_bound() -> None:
    machine = Machine(COST.in_order(is_one_request=True), num_blocks=1000, block_size=16, max_model_len=1000)
    outcome = simulate(closed(6, 6, 20), Settings(static_batch_size=4), "static", machine)
    assert outcome.wall_s < round_law_s(6, COST, Round(4, 6, 20))


def test_a_round_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size=0"):
        Round(0, 6, 20)
