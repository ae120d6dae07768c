"""What holds for every lane alike: the door, the rules of ending, failing and leaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everystep.errors import ConfigError, InvalidRequest, PromptTooLong
from everystep.runner.fake import FakeRunner
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import FinishReason, Policy, Sequence

Make = Callable[..., Sequence]
MakeLane = Callable[..., Policy]
every_lane = pytest.mark.parametrize("make_lane", [StaticPolicy, PerTokenPolicy, ContinuousPolicy])


@every_lane
def test_what_can_never_fit_is_refused_at_the_door_with_its_numbers(make_lane: MakeLane, seq: Make) -> None:
    lane = make_lane(pool=BlockPool(4, 8), max_model_len=24)
    lane.add(seq("fits", prompt=20, max_tokens=4))
    with pytest.raises(PromptTooLong, match="room for 4 of 24"):
        lane.add(seq("answer too long", prompt=20, max_tokens=5))
    with pytest.raises(PromptTooLong, match="24 tokens; the context holds 24"):
        lane.add(seq("no room", prompt=24, max_tokens=1))
    with pytest.raises(InvalidRequest, match="empty"):
        lane.add(seq("empty", prompt=0))
    roomy = make_lane(pool=BlockPool(4, 8), max_model_len=100)
    roomy.add(seq("31 and 1", prompt=31, max_tokens=50))
    with pytest.raises(PromptTooLong, match="32 tokens; the KV cache holds 32"):
        roomy.add(seq("fills the cache", prompt=32, max_tokens=1))


@every_lane
def test_a_sequence_that_outgrows_the_cache_ends_with_length_and_the_lane_lives(
    make_lane: MakeLane, seq: Make, bench: Any
) -> None:
    stage = bench(make_lane(pool=BlockPool(2, 4)))
    stage.add(seq("grows", prompt=3, max_tokens=100), seq("next", prompt=3, max_tokens=2))
    stage.run()
    assert stage.ends == {"grows": FinishReason.LENGTH, "next": FinishReason.LENGTH}
    # 8 tokens fit and are computed; the last of them still says one more
    assert len(stage.tokens["grows"]) == 8 - 3 + 1
    assert len(stage.tokens["next"]) == 2


@every_lane
def test_each_rule_of_ending(make_lane: MakeLane, seq: Make, bench: Any) -> None:
    eos = frozenset({99})
    cases = {
        "eos": (seq("eos", max_tokens=5, eos_token_ids=eos), [7, 99], FinishReason.STOP),
        "ignored": (
            seq("ignored", max_tokens=3, eos_token_ids=eos, ignore_eos=True),
            [99, 99, 99],
            FinishReason.LENGTH,
        ),
        "stop id": (seq("stop id", max_tokens=5, stop_token_ids=(8,)), [7, 8], FinishReason.STOP),
        "stop id with eos ignored": (
            seq("stop id with eos ignored", max_tokens=5, stop_token_ids=(8,), ignore_eos=True),
            [8],
            FinishReason.STOP,
        ),
        "too early": (
            seq("too early", max_tokens=5, min_tokens=3, eos_token_ids=eos, stop_token_ids=(8,)),
            [99, 8, 99],
            FinishReason.STOP,
        ),
        "length": (seq("length", max_tokens=2, eos_token_ids=eos), [1, 2], FinishReason.LENGTH),
        "both at once": (seq("both at once", max_tokens=2, eos_token_ids=eos), [1, 99], FinishReason.STOP),
    }
    script = {name: [*tokens, 99, 99, 99, 99] for name, (_, tokens, _) in cases.items()}
    stage = bench(make_lane(), runner=FakeRunner(script=script))
    stage.add(*(sequence for sequence, _, _ in cases.values()))
    stage.run()
    assert {name: (stage.tokens[name], stage.ends[name]) for name in cases} == {
        name: (tokens, reason) for name, (_, tokens, reason) in cases.items()
    }


@every_lane
def test_a_failing_row_fails_alone(make_lane: MakeLane, seq: Make, bench: Any) -> None:
    stage = bench(make_lane(), runner=FakeRunner(fails={"bad": "not a number"}))
    stage.add(seq("good"), seq("bad"), seq("fine"))
    stage.run()
    assert stage.ends == {"good": "length", "bad": "failed", "fine": "length"}
    assert stage.tokens["bad"] == []


@every_lane
def test_who_leaves_during_the_forward_pass_gets_no_token_of_it(make_lane: MakeLane, seq: Make, bench: Any) -> None:
    stage = bench(make_lane())
    stage.add(seq("stays", max_tokens=2), seq("leaves", max_tokens=2))
    stage.before_apply = lambda: stage.abort("leaves")
    stage.step()
    stage.before_apply = lambda: None
    stage.run()
    assert stage.ends == {"stays": "length", "leaves": "aborted"}
    assert (len(stage.tokens["stays"]), stage.tokens["leaves"]) == (2, [])


@every_lane
def test_aborting_somebody_who_is_not_here_says_so(make_lane: MakeLane, seq: Make, bench: Any) -> None:
    lane = make_lane()
    stage = bench(lane)
    stage.add(seq("a", max_tokens=1))
    stage.run()
    assert lane.abort("a") is False
    assert lane.abort("never came") is False


@every_lane
def test_a_lane_needs_a_seat(make_lane: MakeLane) -> None:
    with pytest.raises(ConfigError, match="seat"):
        make_lane(0)
