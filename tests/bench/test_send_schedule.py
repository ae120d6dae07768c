"""Sending on schedule, on a clock that nobody waits for."""

from __future__ import annotations

import gc

import pytest

from bench.virtual_time import VirtualClock
from everystep.analysis.load import Arrival
from everystep.bench.schedule import Now, Sent, WallClock, send_on_schedule


def load_at(*times_s: float) -> list[Arrival]:
    return [Arrival(at_s, 1, 1) for at_s in times_s]


async def sent_by(clock: VirtualClock, *times_s: float, lasts_s: float = 0.0) -> Sent[float]:
    """Each reply is when its sending began."""

    async def send(index: int, now: Now) -> float:
        began_s = now()
        await clock.server_sleeps(lasts_s)
        return began_s

    return await send_on_schedule(load_at(*times_s), send, clock)


async def test_each_request_goes_out_when_it_is_due_and_not_when_another_has_ended() -> None:
    sent = await sent_by(VirtualClock(), 0.0, 1.0, 1.5, 6.0, lasts_s=10.0)
    assert sent.replies == pytest.approx([0.0, 1.0, 1.5, 6.0])
    assert sent.lags_s == pytest.approx((0.0, 0.0, 0.0, 0.0))
    assert sent.wall_s == pytest.approx(16.0)


async def test_sleeping_too_long_makes_each_late_by_as_much_and_never_adds_up() -> None:
    sent = await sent_by(VirtualClock(overshoot_s=0.25), *map(float, range(1, 21)))
    assert sent.lags_s == pytest.approx((0.25,) * 20)


async def test_those_that_fell_due_meanwhile_go_at_once_and_catch_up() -> None:
    sent = await sent_by(VirtualClock(overshoot_s=3.0), 1.0, 2.0, 3.5, 9.0)
    assert sent.replies == pytest.approx([4.0, 4.0, 4.0, 12.0])
    assert sent.lags_s == pytest.approx((3.0, 2.0, 0.5, 3.0))


async def test_the_collector_stays_out_while_times_are_taken_and_comes_back() -> None:
    async def send(index: int, now: Now) -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    sent = await send_on_schedule(load_at(0.0), send, VirtualClock())
    assert sent.replies == [False]
    assert gc.isenabled()


async def test_the_wall_clock_returns_at_once_where_the_time_has_passed() -> None:
    clock = WallClock()
    before_s = clock.now_s()
    await clock.sleep_until(before_s - 5.0)
    await clock.sleep_until(before_s + 0.001)
    assert clock.now_s() >= before_s + 0.001
