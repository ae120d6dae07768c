"""When to come again: after the time that a line takes to drain, and whoever does mostly finds room."""

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everystep.engine.door import MAX_RETRY_AFTER_S, Line
from everystep.engine.drain import SPARE, Drain
from everystep.errors import QueueFull


def told_to_wait_s(line: Line, num_sequences: int, num_tokens: int, now_s: float) -> float | None:
    """``None`` for those who may come in."""
    try:
        line.check_room(num_sequences, num_tokens, now_s)
    except QueueFull as error:
        return error.retry_after_s
    return None


def drained(starts: list[tuple[float, int, int]], formed_s: float = 0.0) -> Drain:
    """A line that formed and has had these starts, each of so many sequences with so many tokens."""
    drain = Drain()
    drain.form(formed_s)
    for at_s, num_sequences, num_tokens in starts:
        drain.start(num_sequences, num_tokens, at_s)
    return drain


# --- the formula, by hand ------------------------------------------------------------------------
def test_one_start_every_two_seconds_frees_ten_places_in_twenty_and_some_to_spare():
    drain = drained([(2.0 * i, 1, 5) for i in range(1, 11)])
    assert drain.time_for(10, 0, now_s=20.0) == pytest.approx(2.0 + SPARE * 20.0)
    assert drain.time_for(1, 0, now_s=21.0) == pytest.approx(1.0 + SPARE * 2.0 * 19 / 18)  # 9 starts in 18 + 1 s


def test_places_of_static_rounds_come_when_the_round_ends_not_at_the_mean_rate():
    drain = drained([(30.0 * i, 4, 40) for i in range(1, 6)])
    assert drain.time_for(1, 0, now_s=150.0) >= 30.0  # the mean rate says 7.5 s, and would send clients in vain
    assert 5.0 <= drain.time_for(1, 0, now_s=175.0) <= 5.0 + SPARE * 145 / 16
    assert drain.time_for(8, 0, now_s=150.0) >= 60.0


def test_what_lacks_tokens_waits_for_tokens():
    drain = drained([(float(i), 1, 100) for i in range(1, 11)])
    assert drain.time_for(0, 1000, now_s=10.0) == pytest.approx(1.0 + SPARE * 10.0)
    assert drain.time_for(1, 1000, now_s=10.0) == drain.time_for(0, 1000, now_s=10.0)


def test_only_what_is_too_much_has_to_drain_not_all_that_is_asked_for():
    line = Line(max_sequences=100, max_tokens=10**6)
    for i in range(120):
        line.enter(f"s{i}", 1, now_s=0.0)
    for i in range(40):  # one a second
        line.start([f"s{i}"], now_s=1.0 + i)
    # 80 wait; of 50 more, 30 are too many.
    assert told_to_wait_s(line, 50, 50, now_s=40.0) == math.ceil(1.0 + SPARE * 30)


def test_a_silence_longer_than_usual_is_expected_to_last_as_long_again():
    drain = drained([(float(i), 4, 4) for i in range(1, 60)])
    waits = [drain.time_for(1, 0, now_s=59.0 + silent_s) for silent_s in (5.0, 10.0, 30.0)]
    assert waits == [pytest.approx(wait_s, rel=0.1) for wait_s in (5.0, 10.0, 30.0)]  # and a little, the rate has sunk


def test_a_line_that_has_never_moved_is_expected_to_stand_as_long_again():
    drain = drained([])
    assert drain.time_for(1, 1, now_s=0.0) == 0.0
    assert drain.time_for(1, 1, now_s=12.0) == 12.0


def test_starts_from_free_seats_say_nothing_of_a_full_line():
    line = Line(max_sequences=2, max_tokens=100)
    for i in range(100):  # each finds a seat within a millisecond
        line.enter(f"idle{i}", 1, now_s=float(i))
        line.start([f"idle{i}"], now_s=i + 0.001)
    line.enter("a", 1, now_s=200.0)
    line.enter("b", 1, now_s=200.0)
    assert told_to_wait_s(line, 1, 1, now_s=220.0) == 20.0


# --- the formula, for any traffic ----------------------------------------------------------------
gaps = st.floats(0.001, 100.0)
starts = st.lists(st.tuples(gaps, st.integers(1, 8), st.integers(1, 500)), min_size=1, max_size=100)


def at_times(starts: list[tuple[float, int, int]], offset_s: float = 0.0) -> list[tuple[float, int, int]]:
    moments, now_s = [], offset_s
    for gap_s, num_sequences, num_tokens in starts:
        now_s += gap_s
        moments.append((now_s, num_sequences, num_tokens))
    return moments


@given(starts, st.integers(0, 50), st.integers(0, 5000), st.floats(0.0, 100.0))
def test_more_wanted_never_takes_less_time(starts, num_sequences, num_tokens, silent_s):
    moments = at_times(starts)
    drain, now_s = drained(moments), moments[-1][0] + silent_s
    time_s = drain.time_for(num_sequences, num_tokens, now_s)
    assert 0.0 <= time_s <= drain.time_for(num_sequences + 1, num_tokens + 1, now_s) < math.inf


@given(starts, starts, st.floats(0.0, 1e5))
def test_an_idle_gap_of_any_length_changes_nothing(before, after, idle_s):
    def served(idle_s: float) -> float:
        drain, moments = drained(at_times(before)), at_times(before)
        drain.empty()
        begin_s = moments[-1][0] + idle_s
        drain.form(begin_s)
        for at_s, num_sequences, num_tokens in at_times(after, begin_s):
            drain.start(num_sequences, num_tokens, at_s)
        return drain.time_for(5, 50, at_times(after, begin_s)[-1][0])

    assert served(idle_s) == pytest.approx(served(0.0), rel=1e-3, abs=1e-3)


@given(starts, st.floats(0.5, 20.0))
def test_a_machine_so_many_times_as_slow_takes_so_many_times_as_long(starts, factor):
    slow = [(gap_s * factor, num_sequences, num_tokens) for gap_s, num_sequences, num_tokens in starts]
    times = [drained(at_times(some)).time_for(7, 70, at_times(some)[-1][0]) for some in (starts, slow)]
    assert times[1] == pytest.approx(times[0] * factor, rel=1e-6)


@given(starts, st.floats(0.0, 1e4))
def test_a_wait_is_never_shorter_than_the_unusual_silence_before_it(starts, silent_s):
    moments = at_times(starts)
    longest_s = max(gap_s for gap_s, _, _ in starts)
    if silent_s > longest_s:
        assert drained(moments).time_for(1, 1, moments[-1][0] + silent_s) >= silent_s - 1e-6


@given(starts, st.integers(1, 8), st.integers(1, 80))
def test_what_clients_are_told_is_whole_seconds_from_one_to_a_minute(starts, num_sequences, num_tokens):
    line, moments = Line(max_sequences=8, max_tokens=80), at_times(starts)
    for i in range(8):
        line.enter(f"s{i}", 10, now_s=0.0)
    for i, (at_s, _, _) in enumerate(moments):
        line.start([f"s{i}"], now_s=at_s)
        line.enter(f"s{i + 8}", 10, now_s=at_s)
    for _ in range(20):
        wait_s = told_to_wait_s(line, num_sequences, num_tokens, now_s=moments[-1][0])
        assert wait_s in range(1, int(MAX_RETRY_AFTER_S) + 1)


def test_those_refused_together_are_told_different_times_and_who_knocks_without_end_changes_little():
    line = Line(max_sequences=4, max_tokens=1000)
    for i in range(30):
        line.enter(f"s{i}", 1, now_s=0.0)
    for i in range(26):
        line.start([f"s{i}"], now_s=2.0 * i)
    waits = [told_to_wait_s(line, 1, 1, now_s=50.0) for _ in range(1000)]
    assert waits[:4] == [5.0, 7.0, 10.0, 12.0]  # 2 s of silence, and 2.5 s for each who comes before and for oneself
    assert max(wait_s for wait_s in waits if wait_s is not None) == 15.0  # one line's worth, and no more


# --- whoever comes again -------------------------------------------------------------------------
def share_let_in(seed: int, service: "Rounds", max_queue: int = 16, seats: int = 4) -> float:
    """Of those who found the line full and came again when they were told to, the share who then found room.

    On virtual time: every 60 services a crowd of up to twice what line and seats hold, and between a third of the load.
    """
    rng = random.Random(seed)
    line, waiting = Line(max_queue, 10**6), []
    mean_s = service.mean_s / seats
    events = [(0.0, 0, i, "free", i) for i in range(seats)]
    arrivals = [rng.uniform(0, 3000 * mean_s) for _ in range(1000)]
    arrivals += [60 * mean_s * wave + rng.random() for wave in range(50) for _ in range(rng.randint(20, 40))]
    events += [(at_s, 1, count, "first", count) for count, at_s in enumerate(arrivals)]
    num_told = num_let_in = 0
    free: set[int] = set()
    heapq.heapify(events)
    while events:
        now_s, _, _, kind, who = heapq.heappop(events)
        if kind == "free":
            free.add(who)
        else:
            wait_s = told_to_wait_s(line, 1, 1, now_s)
            if kind == "again":
                num_told, num_let_in = num_told + 1, num_let_in + (wait_s is None)
            if wait_s is None:
                line.enter(str(who), 1, now_s)
                waiting.append(str(who))
            elif kind == "first":
                heapq.heappush(events, (now_s + wait_s, 2, who, "again", who))
        if service.may_start(free, seats) and waiting:
            starting, waiting = waiting[: len(free)], waiting[len(free) :]
            line.start(starting, now_s)
            for seat, end_s in zip(sorted(free), service.ends(rng, now_s, len(free)), strict=True):
                if starting:
                    starting.pop()
                    free.discard(seat)
                    heapq.heappush(events, (end_s, 0, seat, "free", seat))
    assert num_told > 200, "the line was hardly ever full"
    return num_let_in / num_told


class Rounds:
    """All seats start together and end together."""

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s

    def may_start(self, free: set[int], seats: int) -> bool:
        return len(free) == seats

    def ends(self, rng: random.Random, now_s: float, num: int) -> list[float]:
        return [now_s + self.mean_s * rng.uniform(0.8, 1.2)] * num


class Seats(Rounds):
    """Each seat starts and ends for itself, after a time of any length."""

    def may_start(self, free: set[int], seats: int) -> bool:
        return bool(free)

    def ends(self, rng: random.Random, now_s: float, num: int) -> list[float]:
        return [now_s + rng.expovariate(1 / self.mean_s) for _ in range(num)]


@pytest.mark.parametrize("kind", [Rounds, Seats])
@pytest.mark.parametrize("mean_s", [2.0, 8.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_client_that_comes_back_when_it_was_told_to_mostly_finds_room(kind, mean_s, seed):
    assert share_let_in(seed, kind(mean_s)) >= 0.8
