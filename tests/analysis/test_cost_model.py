"""The step-cost model: counts by hand, prices found again in made-up steps, and a real machine's steps explained."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from analysis.cost_steps import PRICES, made_steps, made_work, recorded_loads
from everystep.analysis.cost import FEATURES, CalibrationFailed, CostModel, features, fit
from everystep.analysis.step_work import StepWork, TimedStep, Widths, timed_steps, work_of, works_of
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence, StepPlan


def sequence(name: str, num_prompt: int, num_output: int = 0, arrival_index: int = 0) -> Sequence:
    return Sequence(
        sequence_id=name,
        request_id=name,
        policy="continuous",
        token_ids=[7] * (num_prompt + num_output),
        num_prompt_tokens=num_prompt,
        params=SamplingParams(max_tokens=50),
        seed=0,
        eos_token_ids=frozenset(),
        arrival_index=arrival_index,
    )


def decode(name: str, num_prompt: int, num_output: int, arrival_index: int = 1) -> Row:
    one = sequence(name, num_prompt, num_output, arrival_index)
    return Row(one, 0, one.num_tokens - 1, 1)


def record(
    number: int, start_s: float, end_s: float, *rows: tuple[str, str, int, int, str | None]
) -> dict[str, object]:
    keys = ("sequence_id", "phase", "new_tokens", "context_tokens", "finish")
    shown = [dict(zip(keys, row, strict=True)) | {"request_id": row[0]} for row in rows]
    return {"step": number, "start_s": start_s, "end_s": end_s, "rows": shown, "waiting": []}


def test_a_plans_work_is_counted_as_by_hand() -> None:
    chunk = Row(sequence("long", 10), 1, 2, 3)  # tokens 3, 4, 5 of ten: they look at 3 + 4 + 5 tokens, none is drawn
    plan = StepPlan("continuous", (decode("a", 6, 2), chunk), held=(decode("gone", 3, 1),))
    assert work_of(plan, Widths()) == StepWork(
        num_rows=2,
        num_new_tokens=4,
        num_sampled=1,
        num_streams=1,
        context_tokens=8 + 5,
        attention_products=8 + 12,
        is_new_width=True,
    )


def test_a_logged_steps_work_is_that_of_the_plan_behind_it() -> None:
    log = [
        record(5, 0.0, 0.1, ("a", "decode", 1, 8, None), ("long", "prefill", 3, 5, None), ("gone", "held", 0, 4, None)),
        record(6, 0.2, 0.3, ("a", "decode", 1, 9, None), ("long", "prefill", 5, 10, None)),
    ]
    chunk, rest = sequence("long", 10), Row(sequence("long", 10), 1, 5, 5)
    widths = Widths()
    assert works_of(log) == [
        work_of(StepPlan("continuous", (decode("a", 6, 2), Row(chunk, 1, 2, 3))), widths),
        work_of(StepPlan("continuous", (decode("a", 6, 3), rest)), widths),
    ]


def test_a_step_lasts_until_the_next_can_start_and_the_last_of_a_burst_is_not_timed() -> None:
    log = [
        record(0, 0.0, 0.1, ("a", "prefill", 6, 6, None)),
        record(1, 0.125, 0.2, ("a", "decode", 1, 7, "length")),
        record(2, 9.0, 9.1, ("b", "prefill", 4, 4, "length"), ("c", "prefill", 2, 2, None)),
        record(3, 9.5, 9.6, ("b", "held", 0, 4, None), ("c", "decode", 1, 3, "length")),
    ]
    assert [step.seconds for step in timed_steps(log)] == [0.125, 0.5]


def test_a_width_is_new_unless_the_last_wide_step_had_it() -> None:
    widths = Widths()
    assert [widths.is_new(num) for num in (1, 6, 1, 6, 4, 4, 1, 4, 6)] == [
        False, True, False, False, True, False, False, False, True,
    ]  # fmt: skip


def test_bands_split_a_steps_tokens_as_tax_brackets_do() -> None:
    work = StepWork(1, 300, 1, 1, 300, 300 * 301 // 2, False)
    by_name = dict(zip(FEATURES, features(work), strict=True))
    bands = [count for name, count in by_name.items() if name.startswith("tokens_")]
    assert bands == [3, 12, 48, 192, 44]
    assert sum(bands) + 1 == 300


def test_a_price_is_the_sum_of_its_parts_by_hand() -> None:
    work = StepWork(3, 6, 2, 1, 100, 40, True)
    by_hand = 0.018 + 0.004 + 0.010 + 3 * 0.005 + 2 * 0.0045 + 2 * 0.0008 + 0.0004 + 100 * 5e-6 + 40 * 1e-6
    assert CostModel(PRICES).work_s(work) == pytest.approx(by_hand)


def test_exact_steps_give_their_prices_back() -> None:
    found = fit(made_steps(400, random.Random(1)))
    assert found.cost.seconds == pytest.approx(PRICES, rel=1e-6)
    assert found.r_squared == pytest.approx(1.0)
    assert found.num_outliers == 0


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_stalled_steps_leave_predictions_and_sums_right(seed: int) -> None:
    rng = random.Random(seed)
    found = fit(made_steps(600, rng, noise=0.08, stalled=0.04))
    truth = CostModel(PRICES)
    works = [made_work(rng) for _ in range(300)]
    ratios = [found.cost.work_s(work) / truth.work_s(work) for work in works]
    assert max(abs(ratio - 1) for ratio in ratios) < 0.10
    assert sum(map(found.cost.work_s, works)) == pytest.approx(sum(map(truth.work_s, works)), rel=0.02)
    assert 10 <= found.num_outliers <= 45  # 24 of 600 are to be expected


@pytest.mark.parametrize("seed", range(5))
def test_no_price_is_negative_even_where_noise_is_all_there_is(seed: int) -> None:
    rng = random.Random(seed)
    steps = [TimedStep(made_work(rng), rng.uniform(0.9, 1.1)) for _ in range(200)]
    assert min(fit(steps).cost.seconds.values()) >= 0.0


def test_too_few_steps_are_refused_with_both_numbers() -> None:
    with pytest.raises(CalibrationFailed, match=r"29 steps .* 30"):
        fit(made_steps(29, random.Random(0)))


def test_steps_of_one_width_are_refused() -> None:
    work = StepWork(4, 4, 4, 4, 100, 100, False)
    with pytest.raises(CalibrationFailed, match="every step had 4 new tokens"):
        fit([TimedStep(work, 0.05)] * 50)


def test_a_step_of_no_time_is_refused() -> None:
    steps = made_steps(50, random.Random(0))
    with pytest.raises(CalibrationFailed, match="longer than 0 s"):
        fit([*steps, replace(steps[0], seconds=0.0)])


def test_steps_of_a_busy_machine_are_refused_with_the_share_that_fits_nothing() -> None:
    with pytest.raises(CalibrationFailed, match="busy with something else"):
        fit(made_steps(400, random.Random(3), stalled=0.4))


@pytest.mark.parametrize("odd", [{"step": -0.1}, {"step": float("nan")}, {"speed": 1.0}])
def test_prices_that_cannot_be_are_refused(odd: dict[str, float]) -> None:
    with pytest.raises(CalibrationFailed, match=next(iter(odd))):
        CostModel(PRICES | odd)


def test_a_simulation_pays_for_a_new_width_once_and_forgets_it_with_the_next_load() -> None:
    cost = CostModel(PRICES)
    step_s = cost.in_order()
    first = StepPlan("continuous", (Row(sequence("0", 6, arrival_index=0), 0, 0, 6),))
    pair = StepPlan("continuous", (decode("a", 6, 2), decode("b", 6, 2)))
    once = [step_s(first), step_s(pair), step_s(pair)]
    assert once[1] - once[2] == pytest.approx(PRICES["new_width"])
    assert [step_s(first), step_s(pair), step_s(pair)] == once


def test_prompts_of_one_request_pay_for_one_stream() -> None:
    cost = CostModel(PRICES)
    plan = StepPlan("continuous", tuple(decode(name, 6, 2) for name in "abcd"))
    apart, together = cost.in_order(), cost.in_order(is_one_request=True)
    assert apart(plan) - together(plan) == pytest.approx(3 * PRICES["stream"])


def test_a_real_machines_steps_are_explained_nearly_as_well_as_any_linear_cost_could() -> None:
    steps = [step for load in recorded_loads() for step in timed_steps(load)]
    found = fit(steps)
    seconds = np.array([step.seconds for step in steps])
    counts = np.array([features(step.work) for step in steps], float)
    best = np.linalg.lstsq(counts / seconds[:, None], np.ones(len(steps)), rcond=None)[0]  # may be negative
    best_error = np.median(np.abs(counts @ best / seconds - 1))
    error = np.median([abs(found.cost.work_s(step.work) / step.seconds - 1) for step in steps])
    assert found.r_squared > 0.99
    assert error < best_error + 0.01
    assert sum(found.cost.work_s(step.work) for step in steps) == pytest.approx(seconds.sum(), rel=0.02)
