"""``/v1/completions``: the forms of a prompt, choices, logprobs, usage, chunks, refusals."""

from __future__ import annotations

import pytest

from api.harness import EOS_ID, TOKENIZER, VOCAB_SIZE, Server, chunks, ids_of
from everystep.api.openai_bodies import CompletionBody


async def test_a_reply_has_openais_shape(server: Server) -> None:
    server.runner.say("Hello", " world")
    before = server.engine.unix_s()
    reply = (await server.complete("Hello", temperature=0)).json()
    assert reply.pop("id").startswith("cmpl-")
    assert before <= reply.pop("created") <= server.engine.unix_s()
    num_output = len(ids_of(" world")) + 1  # the end token is counted
    assert reply == {
        "object": "text_completion",
        "model": "tiny",
        "choices": [{"index": 0, "text": " world", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": len(ids_of("Hello")),
            "completion_tokens": num_output,
            "total_tokens": len(ids_of("Hello")) + num_output,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_the_same_prompt_as_text_and_as_ids_in_any_form_gives_the_same_text(server: Server) -> None:
    server.runner.say("Hello", " world")
    ids = ids_of("Hello")
    for prompt, num_choices in [("Hello", 1), (["Hello", "Hello"], 2), (ids, 1), ([ids, ids, ids], 3)]:
        choices = (await server.complete(prompt)).json()["choices"]
        assert [(choice["index"], choice["text"]) for choice in choices] == [(i, " world") for i in range(num_choices)]


async def test_choice_c_of_prompt_p_has_index_p_n_plus_c(server: Server) -> None:
    server.runner.say("a", " first")
    server.runner.say("b", " second")
    reply = (await server.complete(["a", "b"], n=2)).json()
    assert [choice["text"] for choice in reply["choices"]] == [" first", " first", " second", " second"]
    assert reply["usage"]["prompt_tokens"] == 2  # each prompt once
    assert reply["usage"]["completion_tokens"] == 2 * (len(ids_of(" first")) + 1 + len(ids_of(" second")) + 1)


async def test_choices_have_seeds_of_their_own(server: Server) -> None:
    await server.complete("x", n=3, seed=5, max_tokens=1)
    assert len({sequence.seed for sequence in server.runner.seen.values()}) == 3


async def test_sixteen_tokens_at_temperature_one_in_the_default_lane_unless_told_otherwise(server: Server) -> None:
    reply = (await server.complete("x")).json()
    sequence = server.runner.last_seen
    assert (sequence.num_output_tokens, sequence.params.temperature, sequence.policy) == (16, 1.0, "continuous")
    assert reply["choices"][0]["finish_reason"] == "length"


async def test_every_option_reaches_the_sequence(server: Server) -> None:
    plain = {
        "max_tokens": 3, "temperature": 0.7, "top_p": 0.8, "presence_penalty": 0.5, "frequency_penalty": -0.5, "n": 1,
        "top_k": 9, "min_p": 0.1, "repetition_penalty": 1.2, "ignore_eos": True, "min_tokens": 2, "logprobs": 4,
    }  # fmt: skip
    await server.complete("x", **plain, stop=["a", "b"], logit_bias={"7": -3}, seed=-1, priority=4, policy="static")
    sequence = server.runner.last_seen
    assert {name: getattr(sequence.params, name) for name in plain} == plain
    assert (sequence.params.stop, dict(sequence.params.logit_bias)) == (("a", "b"), {7: -3.0})
    assert (sequence.seed, sequence.priority, sequence.policy) == (2**64 - 1, 4, "static")


async def test_null_is_as_good_as_absent(server: Server) -> None:
    names = CompletionBody.model_fields.keys() - {"model", "prompt"}
    assert (await server.complete("x", **dict.fromkeys(names))).status_code == 200


async def test_tokens_found_in_the_cache_are_told_in_the_usage(server: Server) -> None:
    prompt = "<|endoftext|>" * 70  # over two blocks of 32
    first = (await server.complete(prompt, max_tokens=1)).json()
    second = (await server.complete(prompt, max_tokens=1)).json()
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 64


async def test_truncation_is_done_when_asked_for_by_name_and_keeps_the_end(server: Server) -> None:
    prompt = "<|endoftext|>" * 600 + "abc"
    assert (await server.complete(prompt)).json()["error"]["type"] == "prompt_too_long"
    kept = len(ids_of("abc")) + 1
    reply = (await server.complete(prompt, truncate_prompt_tokens=kept, echo=True, max_tokens=1)).json()
    assert reply["usage"]["prompt_tokens"] == kept
    assert reply["choices"][0]["text"].startswith("<|endoftext|>abc")


# --- echo ----------------------------------------------------------------------------------------
async def test_echo_gives_the_prompt_back_before_the_text(server: Server) -> None:
    server.runner.say("Hello", " world")
    for prompt in ("Hello", ids_of("Hello")):
        assert (await server.complete(prompt, echo=True)).json()["choices"][0]["text"] == "Hello world"
    streamed = chunks((await server.complete("Hello", echo=True, stream=True)).text)
    assert streamed[0]["choices"][0]["text"] == "Hello"
    assert "".join(chunk["choices"][0]["text"] for chunk in streamed) == "Hello world"


async def test_no_tokens_with_echo_counts_the_prompt_without_the_engine(server: Server) -> None:
    reply = (await server.complete(["Hello", "a"], echo=True, max_tokens=0)).json()
    assert [choice["text"] for choice in reply["choices"]] == ["Hello", "a"]
    assert {choice["finish_reason"] for choice in reply["choices"]} == {"length"}
    assert reply["usage"]["completion_tokens"] == 0
    assert server.runner.num_steps == 0


# --- logprobs ------------------------------------------------------------------------------------
async def test_logprobs_are_parallel_lists_with_offsets_into_the_text(server: Server) -> None:
    text = "ab é😀c"
    server.runner.say("Say", text)
    choice = (await server.complete("Say", logprobs=1, max_tokens=30)).json()["choices"][0]
    found = choice["logprobs"]
    ids = [*ids_of(text), EOS_ID]
    assert choice["text"] == text
    assert {len(values) for values in found.values()} == {len(ids)}
    assert found["token_logprobs"] == [0.0] * len(ids)  # the fake model is certain
    for i, (name, offset) in enumerate(zip(found["tokens"], found["text_offset"], strict=True)):
        # The reference: how much text the tokens before make when they are decoded as a whole.
        assert offset == len(TOKENIZER.decode(ids[:i]).rstrip("\ufffd"))
        assert found["top_logprobs"][i] == {name: 0.0}
    assert "bytes:\\xf0" in "".join(found["tokens"])  # a piece of 😀 is no text
    assert found["tokens"][-1] == "<|im_end|>"


async def test_streamed_logprobs_joined_are_those_of_the_whole_reply(server: Server) -> None:
    server.runner.say("Say", "a few é😀 words")
    whole = (await server.complete("Say", logprobs=2, max_tokens=40)).json()["choices"][0]["logprobs"]
    streamed = chunks((await server.complete("Say", logprobs=2, max_tokens=40, stream=True)).text)
    parts = [chunk["choices"][0]["logprobs"] for chunk in streamed]
    joined = {key: [item for part in parts if part for item in part[key]] for key in whole}
    assert joined == whole


# --- stream --------------------------------------------------------------------------------------
async def test_streamed_chunks_have_openais_shape_and_end_with_its_mark(server: Server) -> None:
    server.runner.say("Hello", " wide world")
    found = chunks((await server.complete("Hello", stream=True, temperature=0)).text)
    assert "".join(chunk["choices"][0]["text"] for chunk in found) == " wide world"
    assert [chunk["choices"][0]["finish_reason"] for chunk in found] == [None] * (len(found) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in found}) == 1
    for chunk in found:
        assert list(chunk) == ["id", "object", "created", "model", "choices"]
        assert (chunk["object"], chunk["model"]) == ("text_completion", "tiny")
        assert list(chunk["choices"][0]) == ["index", "text", "logprobs", "finish_reason"]


async def test_usage_comes_in_a_last_chunk_of_its_own_if_asked_for(server: Server) -> None:
    whole = (await server.complete(["a", "b"], n=2, max_tokens=3)).json()["usage"]
    *others, last = chunks(
        (await server.complete(["a", "b"], n=2, max_tokens=3, stream=True, stream_options={"include_usage": True})).text
    )
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"] == whole


async def test_each_choice_of_a_stream_ends_once(server: Server) -> None:
    found = chunks((await server.complete(["a", "b"], n=3, max_tokens=4, stream=True)).text)
    ends = [chunk["choices"][0]["index"] for chunk in found if chunk["choices"][0]["finish_reason"]]
    assert sorted(ends) == [0, 1, 2, 3, 4, 5]


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "x", "temprature": 1}, "temprature"),
        ({"prompt": "x", "stop_token_ids": [1]}, "stop_token_ids"),
        ({"prompt": "x", "suffix": "end"}, "suffix"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "n": 2, "best_of": 1}, "best_of"),
        ({"prompt": "x", "n": 0}, "n"),
        ({"prompt": "x", "n": 129}, "n"),
        ({"prompt": "x", "n": "2"}, "n"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "logprobs": 1, "echo": True}, "logprobs"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": 0, "echo": True, "stream": True}, "max_tokens"),
        ({"prompt": "x", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "x", "logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"-1": 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"word": 1}}, "logit_bias"),
        ({"prompt": "x", "logit_bias": {"1": 101}}, "logit_bias"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "x", "stream": True, "stream_options": {"exclude": 1}}, "stream_options.exclude"),
        ({"prompt": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"prompt": "x", "stop": ["s"] * 17}, "stop"),
        ({"prompt": "x", "policy": "none"}, "policy"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["x", 1]}, "prompt"),
        ({"prompt": [[1], 1]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [VOCAB_SIZE]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**30]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({}, "prompt"),
    ],
)
async def test_what_is_not_done_is_refused_by_name(server: Server, body: dict, param: str) -> None:
    reply = await server.post("/v1/completions", model="tiny", **body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert error["code"] == error["type"]
    assert server.runner.num_steps == 0


@pytest.mark.parametrize(
    "neutral", [{"suffix": ""}, {"best_of": 1}, {"n": 2, "best_of": 2}, {"user": "somebody"}, {"top_k": -1}]
)
async def test_a_value_that_asks_for_nothing_is_taken(server: Server, neutral: dict) -> None:
    assert (await server.complete("x", max_tokens=1, **neutral)).status_code == 200


async def test_another_models_name_is_not_found(server: Server) -> None:
    reply = await server.post("/v1/completions", model="gpt-4", prompt="x")
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "model_not_found")
    missing = await server.post("/v1/completions", prompt="x")
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "model")


async def test_ids_beyond_the_context_are_refused_before_each_is_looked_at(server: Server) -> None:
    reply = await server.complete([1] * 512)
    assert reply.json()["error"]["message"].startswith("the prompt has 512 tokens; the context holds 512")
