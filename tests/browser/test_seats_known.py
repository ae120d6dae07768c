"""What the page reads out of steps: tokens given so far, times of which nothing is known, and the axis."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from browser.page_modules import call

BLOCK_GIB = 32 * 8 / 2**30  # of the fake runner: 32 tokens, 8 bytes each
COUNTS = """
(steps, cuts) => cuts.map((cut) => {
  const lane = { steps: steps.slice(cut) };
  return lane.steps.map((step, i) => step.rows.map((row) => tokensSoFar(lane, i, row.sequence_id, cut === 0)));
})
"""
SCALE = """
(options) => {
  const scale = new SeatScale(options);
  return { startS: scale.startS, endS: scale.endS, ticks: ticks(scale) };
}
"""


@pytest.fixture
def blank(chromium):
    page = chromium.new_page()
    yield page
    page.close()


def noted_run(stage, prompts: list[dict[str, object]]) -> tuple[list[dict[str, object]], list[dict[str, int]]]:
    """The steps of a run, and by the model's own count what each row's sequence had given after each."""
    given: list[dict[str, int]] = []
    run = stage.runner.run

    def noting(plan):
        given.append({row.sequence.sequence_id: row.sequence.num_output_tokens + row.samples for row in plan.rows})
        return run(plan)

    stage.runner.run = noting
    sent = stage.start(stage.server.post("/try", prompts=prompts, policy="continuous", ignore_eos=True))
    assert sent.result(60).status_code == 200
    steps = stage.log("continuous")
    assert len(steps) == len(given)
    return steps, given


def test_tokens_so_far_are_the_model_s_own_count_in_chunks_after_preemption_and_with_half_the_history(
    start_stage, blank
):
    stage = start_stage(max_num_seqs=6, kv_cache_gib=16.5 * BLOCK_GIB, max_num_batched_tokens=48, max_model_len=256)
    prompts = [{"prompt": "ab" * (10 + 12 * n), "max_tokens": 40 + 10 * n} for n in range(6)]
    steps, given = noted_run(stage, prompts)
    lives = [stage.client.get(f"/requests/{row['request_id']}").json() for row in steps[0]["rows"][:1]]
    assert sum(one["num_preemptions"] for one in lives[0]["sequences"]) > 0, "the run has what it is for"
    told_least = 0
    cuts = [0, 1, 7, len(steps) // 3, len(steps) // 2]
    for cut, told in zip(cuts, call(blank, "seat_known", COUNTS, steps, cuts), strict=True):
        for i, counts in enumerate(told):
            for row, count in zip(steps[cut + i]["rows"], counts, strict=True):
                told_least += count["isLeast"]
                check(count, given[cut + i][row["sequence_id"]], is_whole=cut == 0)
    assert told_least > 0, "who was there before the history is told so"


def check(count: dict[str, object], wanted: int, *, is_whole: bool) -> None:
    if count["isLeast"]:
        assert not is_whole
        assert count["count"] <= wanted
    else:
        assert count["count"] == wanted


def test_whether_a_prompt_has_ended_is_left_open_until_the_next_step_tells(blank):
    rows = [
        {"sequence_id": "a-0", "phase": phase, "new_tokens": new, "context_tokens": context, "finish": None}
        for phase, new, context in (("prefill", 4, 4), ("prefill", 2, 6), ("decode", 1, 7))
    ]
    steps = [{"rows": [row]} for row in rows]
    told = [call(blank, "seat_known", COUNTS, steps[:known], [0])[0] for known in (1, 2, 3)]
    counts = [[one and one["count"] for [one] in lane] for lane in told]
    assert counts == [[None], [0, None], [0, 1, 2]]


def test_a_lane_that_reads_everything_again_counts_from_its_first_reading(blank):
    contexts = [5, 6, 7, 8]
    row = {"sequence_id": "a-0", "phase": "prefill", "finish": None}
    steps = [{"rows": [{**row, "new_tokens": n, "context_tokens": n}]} for n in contexts]
    [told] = call(blank, "seat_known", COUNTS, steps, [0])
    assert [one["count"] for [one] in told] == [1, 2, 3, 4]


def test_a_held_row_has_given_what_it_had_when_it_ended(blank):
    def row(phase: str, new: int, context: int, finish: str | None = None) -> dict[str, object]:
        return {"sequence_id": "a-0", "phase": phase, "new_tokens": new, "context_tokens": context, "finish": finish}

    rows = [row("prefill", 3, 3), row("decode", 1, 4, "length"), row("held", 0, 4), row("held", 0, 4)]
    [told] = call(blank, "seat_known", COUNTS, [{"rows": [one]} for one in rows], [0])
    assert [one["count"] for [one] in told] == [1, 2, 2, 2]


def made_lane(numbers: list[int]) -> dict[str, object]:
    return {"steps": [{"step": n, "start_s": float(n), "end_s": n + 0.9, "rows": []} for n in numbers]}


UNKNOWN = """
(lanes, gaps, isLive) => {
  const store = { isLive, gaps, lanes: new Map(Object.entries(lanes)) };
  const finite = (time) => ({ ...time, fromS: Math.max(-1, time.fromS), toS: Math.min(999, time.toS) });
  const told = ([name, lane]) => [name, unknownTimes(store, lane).map(finite)];
  return Object.fromEntries(Object.entries(lanes).map(told));
}
"""


@pytest.mark.parametrize(
    ("numbers", "gaps", "is_live", "wanted"),
    [
        ([0, 1, 2, 3], [], True, []),
        ([4, 5, 6], [], True, [(-1, 4, None)]),
        ([4, 5, 6], [], False, []),
        ([0, 1, 2, 7, 8], [{"first": 3, "last": 6}], True, [(2.9, 7, 3)]),
        ([0, 1, 2], [{"first": 3, "last": 6}], True, [(2.9, 999, 3)]),
    ],
    ids=["all known", "opened later", "a recording's first", "passed over", "passed over, the next to come"],
)
def test_times_without_known_steps_reach_from_the_last_known_end_to_the_next_known_start(
    blank, numbers, gaps, is_live, wanted
):
    lanes = {"static": made_lane(numbers[::2]), "continuous": made_lane(numbers[1::2])}
    told = call(blank, "seat_known", UNKNOWN, lanes, gaps, is_live)
    for name, times in told.items():
        assert [(time["fromS"], time["toS"], time["first"]) for time in times] == [
            (from_s, lanes[name]["steps"][0]["start_s"] if first is None else to_s, first)
            for from_s, to_s, first in wanted
        ]


@pytest.mark.parametrize("ratio", [1, 1.5, 2])
@pytest.mark.parametrize("edge_s", [3.0, 5_000.123, 900_000.5])
def test_the_axis_has_round_times_that_are_told_exactly_at_every_zoom(blank, ratio, edge_s):
    for n in range(26):
        px_per_s = min(20_000, 0.2 * 1.6**n)
        options = {"widthCss": 1070, "rows": 4, "pxPerS": px_per_s, "edgeS": edge_s, "ratio": ratio}
        axis = call(blank, "seat_scale", SCALE, options)
        times = [tick["atS"] for tick in axis["ticks"]]
        assert all(0 <= at_s <= axis["endS"] for at_s in times)
        assert [float(tick["words"].removesuffix(" s")) for tick in axis["ticks"]] == pytest.approx(times, abs=1e-9)
        if axis["startS"] >= 0:
            assert 4 <= len(times) <= 11
        for one, other in pairwise(times):
            assert 100 <= (other - one) * px_per_s * 1.0001 <= 251
            leading = (other - one) / 10 ** math.floor(math.log10((other - one) * 1.0001))
            assert min(abs(leading - round_one) for round_one in (1, 2, 5)) < 1e-3


def test_rows_shown_are_those_that_were_used_and_some_more(blank):
    shown = "(pairs) => pairs.map(([seats, used]) => rowsToShow(seats, used))"
    pairs = [[64, 0], [64, 4], [64, 5], [64, 16], [64, 33], [4, 2], [2, 0], [6, 5]]
    assert call(blank, "seat_scale", shown, pairs) == [4, 4, 8, 16, 64, 4, 2, 6]


FED = """
(isLive, numSteps, numWaiting) => {
  const store = new Store({ isLive });
  const waiting = () => Array.from({ length: numWaiting }, (_, i) => ({ sequence_id: `w-${i}`, request_id: "w" }));
  const steps = Array.from({ length: numSteps }, (_, step) => ({
    step, policy: "static", start_s: step, end_s: step + 1, rows: [{ seat: 0, sequence_id: "a-0", request_id: "a" }],
    waiting: waiting(),
  }));
  store.addSteps(steps);
  const kept = store.lanes.get("static").steps;
  return [kept.length, kept[0].step, kept.at(-1).step];
}
"""


@pytest.mark.parametrize(
    ("is_live", "num_steps", "num_waiting", "least", "most"),
    [(True, 30_000, 0, 11_000, 12_000), (True, 3_000, 999, 900, 1_000), (False, 30_000, 0, 30_000, 30_000)],
    ids=["many steps", "a long line", "a recording"],
)
def test_what_a_live_page_remembers_is_bounded_in_steps_and_in_all_that_they_tell(
    blank, is_live, num_steps, num_waiting, least, most
):
    kept, first, last = call(blank, "store", FED, is_live, num_steps, num_waiting)
    assert least <= kept <= most
    assert (first, last) == (num_steps - kept, num_steps - 1), "the newest are kept"
