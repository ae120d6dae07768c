"""What can never be served is refused at once, with the numbers; what can't wait now is told when to come again."""

import math

import pytest

from everystep.config import Settings
from everystep.engine.door import Line, check_request
from everystep.errors import InvalidParameter, InvalidRequest, PromptTooLong, QueueFull
from everystep.messages import EngineInfo, GenerationRequest
from everystep.sampling_params import SamplingParams

INFO = EngineInfo("m", "fake", "none", 1, 16, 8, 1, 256, {"static": 4, "continuous": 8}, {})


def check(prompts=((1, 2),), policy="static", settings=None, timeout_s=None, **params):
    params = SamplingParams(**params)
    request = GenerationRequest(request_id="r", prompts=prompts, params=params, policy=policy, timeout_s=timeout_s)
    check_request(request, INFO, settings or Settings(), vocab_size=100)


def test_an_ordinary_request_passes():
    check()


def test_an_unknown_lane_is_refused_with_those_there_are():
    with pytest.raises(InvalidParameter, match="policy='nope' must be one of static, continuous"):
        check(policy="nope")


def test_an_empty_prompt_among_others_is_refused():
    with pytest.raises(InvalidRequest, match="empty"):
        check(prompts=((1,), ()))


def test_a_prompt_and_answer_that_just_fit_the_context_pass_and_one_more_token_does_not():
    check(prompts=((1,) * 100,), max_tokens=156)
    with pytest.raises(PromptTooLong, match="max_tokens=157 but the prompt leaves room for 156 of 256"):
        check(prompts=((1,) * 100,), max_tokens=157)


def test_a_prompt_that_fits_the_context_but_never_the_cache_is_refused():
    check(prompts=((1,) * 127,), max_tokens=1)  # the cache holds 8 blocks of 16
    with pytest.raises(PromptTooLong, match="the prompt has 128 tokens; the KV cache holds 128"):
        check(prompts=((1,) * 128,), max_tokens=1)


def test_a_request_larger_than_the_whole_line_is_refused_for_good():
    with pytest.raises(InvalidRequest, match="9 sequences; the line holds at most 8"):
        check(prompts=((1,),) * 3, n=3, settings=Settings(max_queue=8))


def test_a_biased_token_outside_the_vocabulary_is_refused():
    with pytest.raises(InvalidParameter, match="token id 100 is outside the vocabulary of 100"):
        check(logit_bias={100: 1.0})


@pytest.mark.parametrize("timeout_s", [0.001, 29.9, 30.0])
def test_a_deadline_up_to_the_server_s_own_passes(timeout_s):
    check(timeout_s=timeout_s, settings=Settings(request_timeout=30.0))


def test_a_deadline_beyond_the_server_s_own_is_refused_with_both():
    with pytest.raises(InvalidParameter, match=r"timeout_s=30.5 is above the server's own 30 \(--request-timeout\)"):
        check(timeout_s=30.5, settings=Settings(request_timeout=30.0))
    check(timeout_s=1e9)  # a server without one takes any


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.inf, math.nan])
def test_a_deadline_that_is_no_time_is_refused(timeout_s):
    with pytest.raises(InvalidParameter, match="must be a finite number above 0"):
        check(timeout_s=timeout_s)


def test_the_line_counts_sequences_and_tokens_and_gives_places_back():
    line = Line(max_sequences=2, max_tokens=10)
    line.enter("a", 6, now_s=0.0)
    with pytest.raises(QueueFull, match="6 prompt tokens wait; the line holds 10"):
        line.check_room(1, 5, now_s=0.0)
    line.enter("b", 4, now_s=0.0)
    with pytest.raises(QueueFull, match="2 sequences wait; the line holds 2"):
        line.check_room(1, 0, now_s=0.0)
    line.leave("a")
    line.check_room(1, 6, now_s=0.0)


def test_a_line_holds_exactly_its_bounds():
    line = Line(max_sequences=3, max_tokens=10)
    line.enter("a", 4, now_s=0.0)
    line.check_room(2, 6, now_s=0.0)
    for num_sequences, num_tokens in [(3, 6), (2, 7)]:
        with pytest.raises(QueueFull):
            line.check_room(num_sequences, num_tokens, now_s=0.0)


def test_who_starts_twice_or_leaves_twice_counts_once():
    line = Line(max_sequences=3, max_tokens=10)
    line.enter("a", 4, now_s=0.0)
    line.enter("b", 5, now_s=0.0)
    line.start(["a"], now_s=1.0)
    line.start(["a"], now_s=2.0)  # preempted, and seated again
    line.leave("a")
    assert len(line) == 1
    line.check_room(2, 5, now_s=2.0)
    line.leave("b")
    line.leave("b")
    line.check_room(3, 10, now_s=2.0)
