"""The step log: what it keeps, in which order it is read, and what it weighs."""

from __future__ import annotations

import json
import random

import pytest

from everystep.observe.step_log import PACK_STEPS, StepLog
from observe.made_steps import output, row, waiting


def log_of(*steps: int, size: int = 1000) -> StepLog:
    log = StepLog(size)
    for step in steps:
        log.append(output(step, rows=[row(0, f"s{step}")]))
    return log


def numbers(page: dict[str, object]) -> list[int]:
    steps = page["steps"]
    assert isinstance(steps, list)
    return [step["step"] for step in steps]


def test_a_step_is_shown_in_the_shape_of_the_contract() -> None:
    log = StepLog()
    rows = [row(0, "a", phase="prefill", new=5, context=5), row(2, "b", new=1, context=17, finish="length")]
    line = [waiting("c", "no_blocks", 11.5, needs_blocks=4), waiting("d", "behind", 11.75, behind=0)]
    log.append(output(118, rows=rows, line=line, policy="continuous", start_s=12.0, step_s=0.5))

    assert log.since(117, 10) == {
        "steps": [
            {
                "step": 118,
                "policy": "continuous",
                "start_s": 12.0,
                "end_s": 12.5,
                "shape": [2, 5],
                "rows": [
                    {
                        "seat": 0, "sequence_id": "a", "request_id": "request of a", "phase": "prefill",
                        "new_tokens": 5, "context_tokens": 5, "finish": None,
                    },
                    {
                        "seat": 2, "sequence_id": "b", "request_id": "request of b", "phase": "decode",
                        "new_tokens": 1, "context_tokens": 17, "finish": "length",
                    },
                ],
                "waiting": [
                    {
                        "sequence_id": "c", "request_id": "request of c", "why": "no_blocks",
                        "behind": None, "waited_s": 0.5, "needs_blocks": 4,
                    },
                    {
                        "sequence_id": "d", "request_id": "request of d", "why": "behind",
                        "behind": "c", "waited_s": 0.25,
                    },
                ],
                "blocks_used": 12,
                "blocks_total": 2048,
            }
        ],
        "next": 118,
    }  # fmt: skip


@pytest.mark.parametrize("num_steps", [1, PACK_STEPS - 1, PACK_STEPS, PACK_STEPS + 1, 5 * PACK_STEPS + 3])
@pytest.mark.parametrize("limit", [1, 7, PACK_STEPS, 1000])
def test_pages_read_one_after_the_other_give_every_step_once_and_in_order(num_steps: int, limit: int) -> None:
    log, seen, since = log_of(*range(num_steps)), [], -1
    while page := log.since(since, limit)["steps"]:
        assert len(page) <= limit
        seen += [step["step"] for step in page]
        since = seen[-1]
    assert seen == list(range(num_steps))


def test_a_gap_in_the_numbers_is_passed_over_wherever_one_asks() -> None:
    log = log_of(*range(10), *range(50, 63))
    assert numbers(log.since(7, 4)) == [8, 9, 50, 51]
    assert numbers(log.since(30, 2)) == [50, 51]
    assert numbers(log.since(61, 9)) == [62]


def test_the_ring_keeps_its_size_and_less_than_a_pack_more() -> None:
    log = StepLog(20)
    for step in range(500):
        log.append(output(step))
        assert min(step + 1, 20) <= len(log) < 20 + PACK_STEPS
        assert numbers(log.since(-1, 1000)) == list(range(step + 1 - len(log), step + 1))
    assert log.first_step == 500 - len(log)
    assert log.last_step == 499


def test_who_asks_for_forgotten_steps_gets_the_oldest_remembered() -> None:
    log = log_of(*range(100), size=10)
    first = log.since(3, 1)["steps"][0]["step"]
    assert first == log.first_step
    assert first > 4


def test_an_empty_log_has_no_steps_and_the_next_page_begins_at_the_first() -> None:
    log = StepLog()
    assert log.since(-1, 10) == {"steps": [], "next": -1}
    assert log.first_step is None
    assert list(log.steps()) == []


def test_who_has_seen_all_is_told_to_ask_from_there_again() -> None:
    assert log_of(0, 1, 2).since(2, 10) == {"steps": [], "next": 2}


def test_who_has_seen_more_than_there_is_is_sent_back_to_the_end() -> None:
    assert log_of(0, 1, 2).since(7000, 10) == {"steps": [], "next": 2}


def test_a_numbering_that_starts_anew_starts_the_log_anew() -> None:
    log = log_of(*range(30))
    log.append(output(5))
    assert numbers(log.since(-1, 100)) == [5]
    assert len(log) == 1


def test_an_untold_line_is_as_at_the_step_of_the_same_lane_before() -> None:
    log = StepLog()
    log.append(output(0, policy="static", line=[waiting("a")]))
    log.append(output(1, policy="continuous", line=[waiting("b")]))
    log.append(output(2, policy="static", line=None))
    log.append(output(3, policy="continuous", line=None))
    log.append(output(4, policy="static", line=[]))
    log.append(output(5, policy="static", line=None))
    log.append(output(6, policy="per_token", line=None))
    for _ in range(2):  # as they arrived, then packed
        lines = [[one.sequence_id for one in step.waiting] for step in log.steps() if step.record.step < 7]
        assert lines == [["a"], ["b"], ["a"], ["b"], [], [], []]
        log.append(output(log.last_step + 1))
    assert log.last_step >= PACK_STEPS


def test_what_was_asked_for_is_not_touched_by_later_steps() -> None:
    log = log_of(*range(40), size=30)
    steps = log.steps(35)
    for step in range(40, 200):
        log.append(output(step))
    assert [step.record.step for step in steps] == [36, 37, 38, 39]


def test_the_page_as_text_says_what_the_page_says() -> None:
    log = log_of(*range(45))
    for since, limit in ((-1, 100), (3, 10), (40, 1), (44, 5), (99, 5)):
        assert json.loads(b"".join(log.since_as_json(since, limit))) == log.since(since, limit)
    assert json.loads(b"".join(StepLog().since_as_json(-1, 5))) == {"steps": [], "next": -1}


def test_ten_thousand_full_steps_with_a_long_moving_line_weigh_less_than_forty_megabytes() -> None:
    """64 rows and 200 waiting with ids as long as an OpenAI client's; three come and go at each step."""
    draw, log, num_steps = random.Random(0), StepLog(), 400
    line = [waiting(f"cmpl-{draw.getrandbits(128):032x}-0", arrival_s=draw.random()) for _ in range(200)]
    seated = [f"cmpl-{draw.getrandbits(128):032x}-0" for _ in range(64)]
    for step in range(num_steps):
        rows = [row(seat, name, context=step % 500) for seat, name in enumerate(seated)]
        log.append(output(step, rows=rows, line=line))
        for seat in draw.sample(range(64), 3):
            seated[seat] = line.pop(0)[0]
            line.append(waiting(f"cmpl-{draw.getrandbits(128):032x}-0", arrival_s=step + draw.random()))
    assert log.num_bytes / num_steps * 10_000 < 40e6


def test_a_log_without_room_for_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        StepLog(0)
