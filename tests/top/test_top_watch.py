"""What is kept of a server over time: each step once, and nothing of another server's."""

from __future__ import annotations

import msgspec
import pytest

from everystep.top.server import ServerSilent
from everystep.top.watch import HISTORY_STEPS, MAX_STEPS, Watch
from top.watched import FACTS, Source, figures, step


def numbers(watch: Watch, policy: str = "static") -> list[int]:
    return [one.step for one in watch.steps.get(policy, ())]


def grow(source: Source, until: int, policy: str = "static") -> None:
    first = source.log[-1].step + 1 if source.log else 0
    source.log += [step(number, "D a", policy=policy) for number in range(first, until + 1)]
    source.told = msgspec.structs.replace(source.told, last_step=until)


def test_each_step_is_read_once_and_kept_by_its_lane() -> None:
    source = Source()
    watch = Watch(source)
    watch.look()
    assert (watch.steps, watch.facts) == ({}, FACTS)
    grow(source, 2)
    grow(source, 4, "continuous")
    watch.look()
    assert (numbers(watch), numbers(watch, "continuous")) == ([0, 1, 2], [3, 4])
    grow(source, 5)
    watch.look()
    watch.look()
    assert (numbers(watch), numbers(watch, "continuous")) == ([0, 1, 2, 5], [3, 4])


def test_of_a_long_log_the_end_is_read_and_of_a_long_watch_the_end_is_kept() -> None:
    source = Source()
    grow(source, 5000)
    watch = Watch(source)
    watch.look()
    assert numbers(watch) == list(range(5001 - HISTORY_STEPS, 5001))
    for until in range(5000, 6000, 90):
        grow(source, until)
        watch.look()
    assert numbers(watch) == list(range(until + 1 - MAX_STEPS, until + 1))


def test_who_is_far_behind_goes_on_with_what_is_newest() -> None:
    source = Source()
    grow(source, 10)
    watch = Watch(source)
    watch.look()
    grow(source, 9000)
    watch.look()
    watch.look()
    assert numbers(watch)[-1] == 9000
    assert sum(limit for _, limit in source.asked) < 3000


def test_steps_that_are_numbered_anew_take_the_place_of_the_old_ones() -> None:
    source = Source()
    grow(source, 50)
    watch = Watch(source)
    watch.look()
    source.log = []
    grow(source, 3)
    watch.look()
    assert numbers(watch) == [0, 1, 2, 3]


def test_a_silence_changes_nothing_of_what_is_known() -> None:
    source = Source()
    grow(source, 5)
    watch = Watch(source)
    watch.look()
    source.fault = ServerSilent("no server there")
    grow(source, 7)
    with pytest.raises(ServerSilent):
        watch.look()
    assert (watch.figures, watch.facts) == (figures(last_step=5), FACTS)
    source.fault = None
    watch.silence = "said by whoever looked"
    watch.look()
    assert (numbers(watch), watch.silence, watch.num_servers) == ([0, 1, 2, 3, 4, 5, 6, 7], "", 1)


def test_another_server_in_the_same_place_begins_anew() -> None:
    source = Source()
    grow(source, 5)
    watch = Watch(source)
    watch.look()
    source.told = figures(server_id="two", num_worker_restarts=4, last_step=-1)
    source.log, source.known = [], None
    watch.look()
    assert (watch.steps, watch.facts, watch.num_servers, watch.num_restarts) == ({}, None, 2, 0)
    source.known = FACTS
    grow(source, 1)
    watch.look()
    assert (numbers(watch), watch.facts, watch.num_servers) == ([0, 1], FACTS, 2)


def test_no_step_of_the_old_server_is_taken_for_one_of_a_new_one_that_is_further_on() -> None:
    source = Source()
    grow(source, 5)
    watch = Watch(source)
    watch.look()
    source.told, source.log = figures(server_id="two"), [step(number, "P b") for number in range(9)]
    watch.look()
    watch.look()
    assert [(one.step, one.rows[0].sequence_id) for one in watch.steps["static"]] == [(n, "b") for n in range(9)]


def test_replaced_workers_are_counted_from_the_first_look_on() -> None:
    source = Source(figures(num_worker_restarts=3))
    watch = Watch(source)
    watch.look()
    assert watch.num_restarts == 0
    source.told = figures(num_worker_restarts=5)
    watch.look()
    assert watch.num_restarts == 2
