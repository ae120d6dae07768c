"""A request's life: what it waited for and how long, where it sat, how it ended."""

from __future__ import annotations

import pytest

from everystep.observe.observer import Observer
from everystep.types import FinishReason
from observe.made_steps import output, row, submit, waiting


@pytest.fixture
def observer() -> Observer:
    return Observer(policies=("static", "continuous"))


def cause(why: str, from_s: float, duration_s: float, behind: str | None = None) -> dict[str, object]:
    return {"why": why, "behind": behind, "from_s": from_s, "duration_s": pytest.approx(duration_s)}


def test_an_unknown_request_has_no_life(observer: Observer) -> None:
    assert observer.requests.life("nobody", 1.0) is None


def test_a_sequence_is_told_from_arrival_to_end(observer: Observer) -> None:
    observer.step(output(0, start_s=0.0, rows=[row(0, "other")]))
    observer.accepted(submit("a", arrival_s=0.5))
    observer.step(output(1, start_s=1.0, rows=[row(0, "other")], line=[waiting("a", "no_blocks", 0.5)]))
    observer.step(output(2, start_s=2.0, rows=[row(0, "other")], line=None))
    observer.step(output(3, start_s=3.0, rows=[row(0, "other")], line=[waiting("a", "no_seat", 0.5)]))
    observer.step(output(4, start_s=4.0, rows=[row(2, "a", phase="prefill", new=3)], line=[], started=["a"]))
    observer.token("a", 4.25)
    observer.step(output(5, start_s=5.0, rows=[row(2, "a")], line=None))
    observer.token("a", 5.25)
    observer.finished("a", FinishReason.LENGTH, 5.5)
    assert observer.requests.life("r", 99.0) == {
        "request_id": "r",
        "policy": "continuous",
        "arrival_s": 0.5,
        "is_finished": True,
        "is_complete": True,
        "sequences": [
            {
                "sequence_id": "a",
                "state": "finished",
                "prompt_tokens": 3,
                "queue": [cause("arriving", 0.5, 0.5), cause("no_blocks", 1.0, 2.0), cause("no_seat", 3.0, 1.0)],
                "queue_s": 3.5,
                "seats": [2],
                "first_step": 4,
                "last_step": 5,
                "num_steps": 2,
                "num_held_steps": 0,
                "num_preemptions": 0,
                "output_tokens": 2,
                "first_token_s": 4.25,
                "last_token_s": 5.25,
                "ttft_s": 3.75,
                "finish": "length",
                "finish_s": 5.5,
                "e2e_s": 5.0,
            }
        ],
    }


def test_the_causes_of_a_wait_add_up_to_the_wait(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=0.3))
    for step, why in enumerate(["no_seat", "behind", "behind", "no_budget", "no_seat"]):
        observer.step(
            output(step, start_s=0.5 + step, line=[waiting("a", why, behind="b" if why == "behind" else None)])
        )
    observer.step(output(5, start_s=7.0, rows=[row(0, "a")], line=[], started=["a"]))
    life = observer.requests.life("r", 8.0)
    assert life is not None
    [told] = life["sequences"]
    assert [one["why"] for one in told["queue"]] == ["arriving", "no_seat", "behind", "no_budget", "no_seat"]
    assert told["queue"][2]["behind"] == "b"
    assert sum(one["duration_s"] for one in told["queue"]) == pytest.approx(told["queue_s"]) == pytest.approx(6.7)


def test_who_still_waits_has_waited_until_now(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=1.0))
    observer.step(output(0, start_s=2.0, line=[waiting("a", "no_seat", 1.0)]))
    life = observer.requests.life("r", 5.0)
    assert life is not None
    [told] = life["sequences"]
    assert told["state"] == "waiting"
    assert told["queue"] == [cause("arriving", 1.0, 1.0), cause("no_seat", 2.0, 3.0)]
    assert told["queue_s"] == 4.0
    assert (told["finish"], told["e2e_s"], told["ttft_s"], told["seats"]) == (None, None, None, [])
    assert life["is_finished"] is False


def test_looking_twice_tells_the_same(observer: Observer) -> None:
    observer.accepted(submit("a"))
    observer.step(output(0, start_s=2.0, line=[waiting("a", "no_seat", 1.0)]))
    assert observer.requests.life("r", 5.0) == observer.requests.life("r", 5.0)


def test_preemption_is_a_second_wait_and_another_seat(observer: Observer) -> None:
    observer.accepted(submit("a", arrival_s=0.0))
    observer.step(output(0, start_s=0.0, rows=[row(3, "a")], started=["a"]))
    observer.step(output(1, start_s=1.0, rows=[row(0, "b")], line=[waiting("a", "no_blocks")], preempted=["a"]))
    preempted = observer.requests.life("r", 1.5)
    observer.step(output(2, start_s=2.0, rows=[row(1, "a")], line=[], started=["a"]))
    resumed = observer.requests.life("r", 2.5)
    assert preempted is not None
    assert resumed is not None
    assert preempted["sequences"][0]["state"] == "waiting"
    told = resumed["sequences"][0]
    assert told["state"] == "running"
    assert told["queue"] == [cause("no_blocks", 1.0, 1.0)]
    assert (told["seats"], told["num_preemptions"], told["num_steps"], told["queue_s"]) == ([3, 1], 1, 2, 0.0)


def test_steps_that_only_held_the_seat_are_told_apart_also_after_the_end(observer: Observer) -> None:
    observer.accepted(submit("a", policy="static"))
    observer.step(output(0, policy="static", rows=[row(0, "a"), row(1, "b")], started=["a"]))
    observer.finished("a", FinishReason.STOP, 0.1)
    for step in range(1, 4):
        observer.step(output(step, policy="static", rows=[row(0, "a", phase="held", new=0), row(1, "b")]))
    observer.step(output(4, policy="static", rows=[row(0, "c")]))
    life = observer.requests.life("r", 9.0)
    assert life is not None
    [told] = life["sequences"]
    assert (told["num_steps"], told["num_held_steps"], told["last_step"]) == (1, 3, 0)


def test_steps_of_other_lanes_are_nothing_to_it(observer: Observer) -> None:
    observer.accepted(submit("a", policy="static"))
    observer.step(output(0, policy="static", start_s=1.0, line=[waiting("a", "round_running")]))
    observer.step(output(1, policy="continuous", start_s=2.0, rows=[row(0, "z")], line=[]))
    observer.step(output(2, policy="static", start_s=3.0, rows=[row(0, "a")], line=[], started=["a"]))
    life = observer.requests.life("r", 9.0)
    assert life is not None
    assert life["sequences"][0]["queue"] == [cause("arriving", 0.0, 1.0), cause("round_running", 1.0, 2.0)]


def test_each_sequence_of_a_request_has_its_own_life(observer: Observer) -> None:
    for name in ("r-0", "r-1"):
        observer.accepted(submit(name))
    observer.step(output(0, start_s=1.0, rows=[row(0, "r-0")], line=[waiting("r-1")], started=["r-0"]))
    observer.finished("r-0", FinishReason.STOP, 1.5)
    life = observer.requests.life("r", 2.0)
    assert life is not None
    assert [(one["sequence_id"], one["state"]) for one in life["sequences"]] == [
        ("r-0", "finished"),
        ("r-1", "waiting"),
    ]
    assert life["is_finished"] is False


def test_a_life_whose_first_steps_are_forgotten_says_so() -> None:
    observer = Observer(policies=("continuous",), step_log_size=5)
    observer.accepted(submit("a", arrival_s=0.0))
    for step in range(100):
        observer.step(output(step, start_s=float(step), line=[waiting("a")]))
    life = observer.requests.life("r", 100.0)
    assert life is not None
    assert life["is_complete"] is False
    queue = life["sequences"][0]["queue"]
    assert [one["why"] for one in queue] == ["forgotten", "no_seat"]
    assert queue[0]["duration_s"] == observer.step_log.first_step


def test_the_last_requests_are_kept_and_no_more() -> None:
    observer = Observer(policies=("continuous",), max_requests=3)
    for index in range(10):
        observer.accepted(submit(f"s{index}", request_id=f"r{index}"))
    known = [index for index in range(10) if observer.requests.life(f"r{index}", 1.0)]
    assert known == [7, 8, 9]
    assert len(observer.requests) == 3


def test_requests_of_many_sequences_leave_room_for_fewer_requests_but_the_newest_is_kept_whole() -> None:
    observer = Observer(policies=("continuous",), max_requests=2)
    observer.accepted(submit("s", request_id="small"))
    for index in range(100):
        observer.accepted(submit(f"s{index}", request_id="large"))
    assert observer.requests.life("small", 1.0) is None
    life = observer.requests.life("large", 1.0)
    assert life is not None
    assert len(life["sequences"]) == 100


def test_a_forgotten_request_still_counts_until_its_end() -> None:
    observer = Observer(policies=("continuous",), max_requests=1)
    for name in ("a", "b"):
        observer.accepted(submit(name, request_id=name))
    assert observer.metrics.num_open(seated=False) == {"continuous": 2}
    observer.finished("a", FinishReason.STOP, 1.0)
    assert observer.metrics.num_open(seated=False) == {"continuous": 1}


def test_an_id_used_again_later_names_the_later_request(observer: Observer) -> None:
    observer.accepted(submit("r-0", arrival_s=1.0))
    observer.finished("r-0", FinishReason.STOP, 2.0)
    observer.accepted(submit("r-0", arrival_s=3.0))
    life = observer.requests.life("r", 4.0)
    assert life is not None
    assert life["arrival_s"] == 3.0
    assert len(life["sequences"]) == 1


def test_a_log_without_room_for_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Observer(policies=(), max_requests=0)
