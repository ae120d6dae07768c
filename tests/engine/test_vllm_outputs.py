"""What vLLM says, read: through its own classes' shapes and through its HTTP server's."""

import json
from types import SimpleNamespace as Fields

import pytest

from everystep.engine.vllm.completions import RemoteFailure, body_of, failure_of, read_line
from everystep.engine.vllm.outputs import read_events, scheduled_s
from everystep.engine.vllm.sampling import refuse_undone
from everystep.engine.vllm.server_metrics import read_load
from everystep.errors import InvalidParameter
from everystep.messages import FailureKind, Submit, VllmLoad
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, SampledToken, TokenEvent, TokenLogprob


def output(*token_ids, reason=None, logprobs=None, cached=0):
    delta = Fields(token_ids=list(token_ids), finish_reason=reason, logprobs=logprobs)
    return Fields(outputs=[delta], num_cached_tokens=cached, metrics=Fields(scheduled_ts=12.5))


def entry(logprob, rank):
    return Fields(logprob=logprob, rank=rank)


def test_each_token_of_a_delta_is_an_event_and_the_last_has_the_end():
    assert read_events("s", output(7, 8, reason="length", cached=16), None) == (
        TokenEvent("s", SampledToken(7), num_cached_tokens=16),
        TokenEvent("s", SampledToken(8), FinishReason.LENGTH, None, 16),
    )


def test_an_end_without_a_token_is_an_event_too():
    assert read_events("s", output(reason="stop"), None) == (TokenEvent("s", None, FinishReason.STOP),)


@pytest.mark.parametrize("words", ["abort", "error"])
def test_an_end_that_nobody_asked_for_is_a_failure_in_words(words):
    (event,) = read_events("s", output(reason=words), None)
    assert event.finish_reason is FinishReason.FAILED
    assert words in event.error


def test_logprobs_are_the_drawn_token_s_and_the_likeliest_in_order():
    at_hand = {5: entry(-4.0, 9), 2: entry(-0.5, 1), 3: entry(-1.5, 2)}  # vLLM puts the drawn one first
    (event,) = read_events("s", output(5, logprobs=[at_hand]), 2)
    assert event.token == SampledToken(5, -4.0, (TokenLogprob(2, -0.5), TokenLogprob(3, -1.5)))


def test_the_drawn_token_alone_is_reported_where_no_others_were_asked_for():
    (event,) = read_events("s", output(5, logprobs=[{5: entry(-4.0, 9)}]), 0)
    assert event.token == SampledToken(5, -4.0)


def test_when_it_was_scheduled_is_read_where_vllm_says_it():
    assert scheduled_s(output(1)) == 12.5
    assert scheduled_s(Fields(metrics=None)) is None


# --- parameters ----------------------------------------------------------------------------------
@pytest.mark.parametrize("temperature", [2.01, 0.009])
def test_temperatures_that_vllm_would_refuse_or_change_are_refused(temperature):
    with pytest.raises(InvalidParameter, match="temperature"):
        refuse_undone(SamplingParams(temperature=temperature))


@pytest.mark.parametrize("temperature", [0.0, 0.01, 2.0])
def test_temperatures_that_vllm_takes_pass(temperature):
    refuse_undone(SamplingParams(temperature=temperature))


def submit(**params):
    return Submit("r-0", "r", "vllm", (1, 2), SamplingParams(**params), 5, (2, 3), -4, 0.0)


def test_a_body_names_every_parameter():
    assert body_of(submit(max_tokens=4, temperature=1.0, seed=5, logit_bias={7: 2.0}, logprobs=3), "m") == {
        "model": "m", "prompt": [1, 2], "n": 1, "max_tokens": 4, "min_tokens": 0, "temperature": 1.0, "top_p": 1.0,
        "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "logit_bias": {"7": 2.0}, "seed": 5, "stop_token_ids": [2, 3], "ignore_eos": True, "logprobs": 3,
        "stream": True, "return_token_ids": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip


def test_greedy_and_seedless_requests_send_no_seed():
    assert body_of(submit(seed=5), "m")["seed"] is None
    assert body_of(submit(temperature=1.0), "m")["seed"] is None


# --- the stream ----------------------------------------------------------------------------------
def line(**choice):
    return "data: " + json.dumps({"id": "x", "choices": [{"index": 0, "text": "t", **choice}]})


def test_a_line_gives_its_tokens_and_the_end():
    assert read_line(line(token_ids=[4, 5], finish_reason="stop"), "s", None) == (
        TokenEvent("s", SampledToken(4)),
        TokenEvent("s", SampledToken(5), FinishReason.STOP),
    )


@pytest.mark.parametrize("text", ["", ": ping", "data: [DONE]", 'data: {"choices": []}'])
def test_lines_without_a_choice_give_nothing(text):
    assert read_line(text, "s", None) == ()


def test_logprobs_come_with_ids_instead_of_texts():
    logprobs = {"token_logprobs": [-4.0], "top_logprobs": [{"token_id:5": -4.0, "token_id:2": -0.5, "token_id:3": -1}]}
    (event,) = read_line(line(token_ids=[5], logprobs=logprobs), "s", 2)
    assert event.token == SampledToken(5, -4.0, (TokenLogprob(2, -0.5), TokenLogprob(3, -1.0)))


@pytest.mark.parametrize(("code", "kind"), [(400, FailureKind.REFUSED), (500, FailureKind.FAILED)])
def test_an_error_in_the_stream_is_whoever_s_fault_its_code_says(code, kind):
    with pytest.raises(RemoteFailure, match="no good") as caught:
        read_line("data: " + json.dumps({"error": {"message": "no good", "code": code}}), "s", None)
    assert caught.value.kind is kind


@pytest.mark.parametrize("text", ["data: {", line()])
def test_a_stream_that_we_can_t_use_is_a_failure(text):
    with pytest.raises(RemoteFailure) as caught:
        read_line(text, "s", None)
    assert caught.value.kind is FailureKind.FAILED


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FailureKind.REFUSED), (422, FailureKind.REFUSED), (429, FailureKind.UNAVAILABLE),
        (503, FailureKind.UNAVAILABLE), (401, FailureKind.FAILED), (404, FailureKind.FAILED), (500, FailureKind.FAILED),
    ],
)  # fmt: skip
def test_a_reply_s_status_says_whose_fault_it_is(status, kind):
    failure = failure_of(status, b'{"error": {"message": "because"}}')
    assert (failure.kind, str(failure)) == (kind, f"HTTP {status}: because")
    assert str(failure_of(status, b"<html>")) == f"HTTP {status}: <html>"


def test_a_server_s_metrics_are_added_over_its_engines():
    text = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 8.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:num_preemptions_total{engine="0"} 4.0
vllm:prefix_cache_hits_total{engine="0"} 64.0
"""
    assert read_load(text) == VllmLoad(5, 1, 0.5, 4, 64)
    assert read_load("") == VllmLoad(0, 0, 0.0, 0, 0)
