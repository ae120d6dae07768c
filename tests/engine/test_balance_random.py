"""After any random run the numbers balance, at every scrape; the gauges fall to zero and the blocks come back.

The real engine in process, behind the real API, with a model that steps when the test lets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from api.harness import Server, serving
from engine.balance_calls import PATHS, Order, Sent
from engine.balance_sheet import LANES, BalanceSheet, Ledger, Scrape

SETTINGS = {
    "max_num_seqs": 4, "max_num_batched_tokens": 16, "static_batch_size": 3, "per_token_batch_size": 2,
    "max_queue": 12, "queue_timeout": 0.5, "max_model_len": 512, "kv_cache_gib": 0.00001, "log_level": "debug",
}  # fmt: skip
SEATS = {"static": 3, "per_token": 2, "continuous": 4}
MAX_LOOKS = 8  # scrapes for a step to come; nobody may be there to make one

orders = st.builds(
    Order,
    kind=st.sampled_from(sorted(PATHS)),
    policy=st.sampled_from(LANES),
    num_prompts=st.integers(1, 3),
    n=st.integers(1, 3),
    max_tokens=st.integers(1, 40),
    priority=st.integers(-2, 2),
    timeout_s=st.sampled_from([None, None, None, 0.001, 0.02]),
    is_too_long=st.sampled_from([False] * 9 + [True]),
)
happenings = st.one_of(
    st.tuples(st.just("send"), orders),
    st.tuples(st.just("send"), orders),
    st.tuples(st.just("steps"), st.integers(1, 12)),
    st.tuples(st.just("leave"), st.integers(0, 20)),
    st.tuples(st.just("fail"), st.integers(0, 20)),
    st.tuples(st.just("break"), st.just(0)),
)

NINE = Order("completions", "static", num_prompts=3, n=3, max_tokens=40)
EVERY_OUTCOME: list[tuple[str, Any]] = [
    ("send", NINE),
    ("send", NINE),  # the line holds twelve
    ("steps", 1),
    ("fail", 0),
    ("steps", 2),
    ("send", Order("generate_stream", "per_token", num_prompts=1, n=1, max_tokens=40, timeout_s=0.001)),
    ("leave", 0),
    ("send", Order("chat", "continuous", num_prompts=1, n=1, max_tokens=3)),
]


class Run:
    """One random run on a server that others have run on before: all is counted from here."""

    def __init__(self, server: Server, sheet: BalanceSheet) -> None:
        self.server, self.sheet = server, sheet
        self.sent: list[Sent] = []

    async def play(self, story: list[tuple[str, Any]]) -> None:
        self.server.runner.fails.clear()
        self.server.runner.seen.clear()
        self.server.runner.hold()
        before = await self.sheet.at_rest()
        for what, argument in story:
            await getattr(self, f"_{what}")(argument)
            await self.sheet.scrape()
        self.server.runner.release()
        await asyncio.wait_for(asyncio.gather(*(call.task for call in self.sent)), 60)
        await self._settle(before, await self.sheet.at_rest())

    async def _settle(self, before: Scrape, after: Scrape) -> None:
        ledger = Ledger()
        await ledger.read(self.server.http, [call.generation_id for call in self.sent if call.generation_id])
        for call in self.sent:
            assert call.status is not None
            assert call.status != 500 or b"broken" in call.received, call.received
            if call.status == 429:
                ledger.rejected(call.order.policy, call.order.num_sequences)
        ledger.check(before, after)

    async def _send(self, order: Order) -> None:
        self.sent.append(Sent(self.server.app, order))
        await asyncio.sleep(0)

    async def _steps(self, num_steps: int) -> None:
        """Let the model go on, and look until it has begun to; it can't where nobody is there."""
        last = self.server.engine.observer.step_log.last_step
        self.server.runner.allow(num_steps)
        for _ in range(MAX_LOOKS):
            scrape = await self.sheet.scrape()
            if scrape.is_at_rest or self.server.engine.observer.step_log.last_step > last:
                return

    async def _leave(self, index: int) -> None:
        if self.sent:
            self.sent[index % len(self.sent)].leave()
            await asyncio.sleep(0)

    async def _fail(self, index: int) -> None:
        """One of those that have been computed before fails in its next pass, alone."""
        if seen := list(self.server.runner.seen):
            self.server.runner.fails[seen[-1 - index % len(seen)]] = "broken row"

    async def _break(self, _: int) -> None:
        """The next pass fails as a whole."""
        runner = self.server.runner
        run = type(runner).run

        def broken(plan: Any) -> Any:
            del runner.run  # the next one is whole again
            run(runner, plan)
            raise RuntimeError("broken pass")

        runner.run = broken  # type: ignore[method-assign]


@pytest.fixture
def playing() -> Iterator[tuple[asyncio.Runner, Server, BalanceSheet]]:
    """A server on a loop of its own, for all examples."""
    with asyncio.Runner() as loop:
        context = serving(**SETTINGS)
        server = loop.run(context.__aenter__())
        yield loop, server, BalanceSheet(server.http, SEATS)
        loop.run(context.__aexit__(None, None, None))


def check_many(playing: tuple[asyncio.Runner, Server, BalanceSheet], max_examples: int) -> None:
    loop, server, sheet = playing

    @settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(st.lists(happenings, min_size=3, max_size=18))
    @example(EVERY_OUTCOME)
    def play(story: list[tuple[str, Any]]) -> None:
        loop.run(Run(server, sheet).play(story))

    play()
    last = loop.run(sheet.scrape())
    for outcome in ("length", "aborted", "failed", "timeout", "rejected"):
        assert last.sum("everystep_requests_total", outcome=outcome) > 0, f"no run had one that ended {outcome}"


def test_the_numbers_balance_at_every_scrape_of_a_random_run(
    playing: tuple[asyncio.Runner, Server, BalanceSheet],
) -> None:
    check_many(playing, 20)
    assert playing[2].num_scrapes >= 20 * (1 + 3 + 1)  # before, after each of what happens, and behind


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_numbers_balance_at_every_scrape_of_many_random_runs(
    playing: tuple[asyncio.Runner, Server, BalanceSheet],
) -> None:
    check_many(playing, 60)


def test_a_sheet_that_doesn_t_balance_is_found(playing: tuple[asyncio.Runner, Server, BalanceSheet]) -> None:
    """The tests above can fail: each sum is told apart from one that is off by one."""
    loop, server, sheet = playing
    metrics = server.engine.observer.metrics
    loop.run(sheet.scrape())
    metrics.num_accepted["static"] += 1
    with pytest.raises(AssertionError, match="static doesn't balance"):
        loop.run(sheet.scrape())
    metrics.num_accepted["static"] -= 1
    metrics.ttft_s.observe(1.0)
    with pytest.raises(AssertionError):
        loop.run(sheet.scrape())
    assert not Scrape("everystep_kv_cache_usage_ratio 0.5\n").is_at_rest
