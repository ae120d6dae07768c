"""The counters balance at every scrape, whatever happens to whom in which order, and the gauges fall to zero."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from everystep.observe.observer import Observer
from everystep.types import FinishReason
from observe.made_steps import output, row, submit
from observe.scraping import Scrape

POLICIES = ("static", "continuous")
names = st.integers(0, 7).map("s{}".format)  # few, so that news of the ended, the unknown and the doubled is common
some_names = st.lists(names, max_size=4)
happenings = st.one_of(
    st.tuples(st.just("accepted"), st.sampled_from(POLICIES)),
    st.tuples(st.just("rejected"), st.sampled_from(POLICIES)),
    st.tuples(st.just("step"), st.tuples(some_names, some_names)),
    st.tuples(st.just("token"), names),
    st.tuples(st.just("finished"), st.tuples(names, st.sampled_from(list(FinishReason)))),
)


class Play:
    """An observer, and plain counts of what it was told."""

    def __init__(self) -> None:
        self.observer = Observer(policies=POLICIES, max_requests=3)
        self.policies: dict[str, str] = {}  # open sequence → policy
        self.accepted = dict.fromkeys(POLICIES, 0)
        self.seated: set[str] = set()
        self.spoke: set[str] = set()
        self.num_ended = self.num_first_tokens = self.steps = 0

    def tell(self, what: str, argument: object) -> None:
        getattr(self, f"_{what}")(argument)

    def check(self) -> None:
        scrape = Scrape(self.observer)
        for policy in POLICIES:
            accepted = scrape.value("everystep_requests_accepted_total", policy=policy)
            assert accepted == self.accepted[policy]
            assert accepted == scrape.ended(policy) + scrape.open(policy)
            running = scrape.value("everystep_num_requests_running", policy=policy)
            assert running == sum(self.policies[name] == policy for name in self.seated)
        assert scrape.value("everystep_e2e_request_seconds_count") == self.num_ended
        assert scrape.value("everystep_time_to_first_token_seconds_count") == self.num_first_tokens
        assert scrape.value("everystep_step_seconds_count") == self.steps

    def _accepted(self, policy: str) -> None:
        free = sorted({f"s{i}" for i in range(8)} - set(self.policies))
        if free:
            self.policies[free[0]] = policy
            self.accepted[policy] += 1
            self.observer.accepted(submit(free[0], policy=policy, request_id=f"r{self.steps}"))

    def _rejected(self, policy: str) -> None:
        self.observer.rejected(policy)

    def _step(self, news: tuple[list[str], list[str]]) -> None:
        started, preempted = news
        rows = [row(seat, name) for seat, name in enumerate(started)]
        self.observer.step(output(self.steps, rows=rows, started=started, preempted=preempted))
        self.steps += 1
        self.seated = (self.seated - set(preempted)) | (set(started) & set(self.policies))

    def _token(self, name: str) -> None:
        self.observer.token(name, 1.0)
        if name in self.policies and name not in self.spoke:
            self.spoke.add(name)
            self.num_first_tokens += 1

    def _finished(self, news: tuple[str, FinishReason]) -> None:
        name, reason = news
        self.observer.finished(name, reason, 2.0)
        self.num_ended += self.policies.pop(name, None) is not None
        self.seated.discard(name)
        self.spoke.discard(name)


@settings(max_examples=40, deadline=None)
@given(st.lists(happenings, max_size=25))
def test_accepted_is_ended_and_running_and_waiting_at_every_scrape(story: list[tuple[str, object]]) -> None:
    play = Play()
    for what, argument in story:
        play.tell(what, argument)
        play.check()
    for name in list(play.policies):
        play.tell("finished", (name, FinishReason.FAILED))
    play.check()
    play.observer.blocks(0)
    scrape = Scrape(play.observer)
    assert all(scrape.open(policy) == 0 for policy in POLICIES)
    assert scrape.value("everystep_kv_cache_usage_ratio") == 0
