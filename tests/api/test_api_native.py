"""The four native endpoints: replies, lanes, the stream, refusals."""

from __future__ import annotations

import asyncio
import json

import pytest

from api.harness import FOREVER, Server, events, ids_of
from everystep.types import FinishReason

MIXED = "안녕하세요 😀👨‍👩‍👧 العربية é def f(x):\n\treturn x"


async def test_the_reply_is_the_continuation_without_the_prompt(server: Server) -> None:
    server.runner.say("Hello", " world")
    reply = await server.post("/basic_generate", prompt="Hello")
    assert (reply.status_code, reply.json()) == (200, {"generated_text": " world"})


async def test_echo_puts_the_prompt_before_it(server: Server) -> None:
    server.runner.say("Hello", " world")
    assert (await server.post("/basic_generate", prompt="Hello", echo=True)).json() == {"generated_text": "Hello world"}
    reply = await server.post("/generate", prompts=["Hello"], echo=True)
    assert reply.json() == {"generated_texts": ["Hello world"]}


async def test_texts_come_in_the_order_of_the_prompts_though_the_first_ends_last(server: Server) -> None:
    for prompt, text in {"a": " a long answer here", "b": " b", "c": " so"}.items():
        server.runner.say(prompt, text)
    reply = await server.post("/generate", prompts=["a", "b", "c", "b"])
    assert reply.json() == {"generated_texts": [" a long answer here", " b", " so", " b"]}


async def test_no_prompts_give_no_texts(server: Server) -> None:
    reply = await server.post("/generate", prompts=[])
    assert (reply.status_code, reply.json()) == (200, {"generated_texts": []})


@pytest.mark.parametrize(
    ("path", "body", "lane"),
    [
        ("/basic_generate", {"prompt": "x"}, "static"),
        ("/generate", {"prompts": ["x"]}, "static"),
        ("/generate_stream", {"prompt": "x"}, "per_token"),
    ],
)
async def test_each_endpoint_has_its_lane_unless_another_is_asked_for(
    server: Server, path: str, body: dict, lane: str
) -> None:
    await server.post(path, **body)
    assert server.runner.last_seen.policy == lane
    await server.post(path, **body, policy="continuous")
    assert server.runner.last_seen.policy == "continuous"


async def test_left_out_options_mean_twenty_greedy_tokens(server: Server) -> None:
    await server.post("/basic_generate", prompt="x")
    sequence = server.runner.last_seen
    assert (sequence.params.max_tokens, sequence.params.temperature, sequence.priority) == (20, 0.0, 0)
    assert (sequence.num_output_tokens, sequence.finish_reason) == (20, FinishReason.LENGTH)


async def test_options_reach_the_sequence(server: Server) -> None:
    options = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 11, "ignore_eos": True}
    await server.post("/basic_generate", prompt="x", stop=["zz"], priority=-2, **options)
    sequence = server.runner.last_seen
    assert {name: getattr(sequence.params, name) for name in options} == options
    assert (sequence.params.stop, sequence.priority, sequence.seed) == (("zz",), -2, 11)


async def test_a_default_length_that_the_context_has_no_room_for_is_cut_but_an_asked_one_is_refused(
    server: Server,
) -> None:
    prompt = "<|endoftext|>" * 505  # of 512
    assert (await server.post("/basic_generate", prompt=prompt)).status_code == 200
    assert server.runner.last_seen.num_output_tokens == 7
    reply = await server.post("/basic_generate", prompt=prompt, max_tokens=20)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "max_tokens"


async def test_a_stop_string_ends_the_text_and_is_not_part_of_it(server: Server) -> None:
    server.runner.say("Count", " one two three four")
    reply = await server.post("/basic_generate", prompt="Count", stop=" three")
    assert reply.json() == {"generated_text": " one two"}


# --- the stream ----------------------------------------------------------------------------------
@pytest.mark.parametrize("text", [" plain words", MIXED])
async def test_streamed_tokens_joined_are_the_text(server: Server, text: str) -> None:
    server.runner.say("Say", text)
    reply = await server.post("/generate_stream", prompt="Say", max_tokens=len(ids_of(text)) + 1)
    found = [json.loads(event) for event in events(reply.text)]
    assert "".join(event["token"] for event in found) == text
    assert "\ufffd" not in reply.text
    assert all(list(event) == ["token", "sequence_id"] for event in found)
    assert len({event["sequence_id"] for event in found}) == 1
    assert len(found) > 1


async def test_a_stream_is_server_sent_events_that_no_proxy_holds_back(server: Server) -> None:
    reply = await server.post("/generate_stream", prompt="x", max_tokens=2)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.text.endswith("}\n\n")


async def test_an_echoed_prompt_is_the_first_event(server: Server) -> None:
    server.runner.say("Hello", " world")
    reply = await server.post("/generate_stream", prompt="Hello", echo=True)
    tokens = [json.loads(event)["token"] for event in events(reply.text)]
    assert tokens[0] == "Hello"
    assert "".join(tokens) == "Hello world"


async def test_a_failure_after_the_start_is_an_error_event_and_then_the_end(server: Server) -> None:
    server.runner.say("Say", " some words before it breaks")
    server.runner.hold()
    server.runner.allow(1)
    task = asyncio.create_task(server.post("/generate_stream", prompt="Say"))
    await server.engine.wait_for_step(-1)
    [sequence_id] = server.runner.seen
    server.runner.fails[sequence_id] = "the row broke"
    server.runner.release()
    reply = await task
    *_, last = [block for block in reply.text.split("\n\n") if block]
    assert reply.status_code == 200
    kind, data = last.split("\n")
    assert kind == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert error == {"type": "engine_failed", "message": "the row broke", "param": None}


# --- vLLM ----------------------------------------------------------------------------------------
async def test_without_vllm_its_endpoint_says_how_to_have_it(server: Server) -> None:
    reply = await server.post("/generate_vllm", prompts=["x"], max_tokens=3)
    assert reply.status_code == 503
    words = reply.json()["error"]["message"]
    assert "pip install vllm" in words
    assert "--vllm-python" in words
    assert "retry-after" not in reply.headers


async def test_the_vllm_endpoint_refuses_a_lane(server: Server) -> None:
    reply = await server.post("/generate_vllm", prompts=["x"], policy="static")
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "policy")


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "status", "kind", "param"),
    [
        ({"prompt": "x", "promt": "y"}, 422, "malformed_body", "promt"),
        ({"prompt": "x", "Model": "y"}, 422, "malformed_body", "Model"),
        ({}, 422, "malformed_body", "prompt"),
        ({"prompt": None}, 422, "malformed_body", "prompt"),
        ({"prompt": ["x"]}, 422, "malformed_body", "prompt"),
        ({"prompt": "x", "max_tokens": "20"}, 422, "malformed_body", "max_tokens"),
        ({"prompt": "x", "max_tokens": 1.5}, 422, "malformed_body", "max_tokens"),
        ({"prompt": "x", "max_tokens": True}, 422, "malformed_body", "max_tokens"),
        ({"prompt": "x", "stop": [1]}, 422, "malformed_body", "stop.0"),
        ({"prompt": "x", "priority": 2**63}, 422, "malformed_body", "priority"),
        ({"prompt": "x", "max_tokens": 0}, 400, "invalid_parameter", "max_tokens"),
        ({"prompt": "x", "max_tokens": 10**30}, 400, "invalid_parameter", "max_tokens"),
        ({"prompt": "x", "temperature": -1}, 400, "invalid_parameter", "temperature"),
        ({"prompt": "x", "top_p": 0}, 400, "invalid_parameter", "top_p"),
        ({"prompt": "x", "seed": 2**64}, 400, "invalid_parameter", "seed"),
        ({"prompt": "x", "stop": ""}, 400, "invalid_parameter", "stop"),
        ({"prompt": "x", "policy": "fastest"}, 400, "invalid_parameter", "policy"),
        ({"prompt": ""}, 400, "invalid_request", "prompt"),
        ({"prompt": "<|endoftext|>" * 512}, 400, "prompt_too_long", "prompt"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    server: Server, body: dict, status: int, kind: str, param: str
) -> None:
    for path in ("/basic_generate", "/generate_stream"):
        reply = await server.post(path, **body)
        error = reply.json()["error"]
        assert (reply.status_code, error["type"], error["param"]) == (status, kind, param)
        assert list(error) == ["type", "message", "param"]
    assert server.runner.num_steps == 0


async def test_a_prompt_of_exactly_the_context_less_one_token_is_served(server: Server) -> None:
    reply = await server.post("/basic_generate", prompt="<|endoftext|>" * (FOREVER + 111))
    assert reply.status_code == 200
    assert server.runner.last_seen.num_output_tokens == 1


async def test_nul_characters_and_single_tokens_are_ordinary_prompts(server: Server) -> None:
    for prompt in ("\x00", "a", "\x00\x00 \u200b"):
        assert (await server.post("/basic_generate", prompt=prompt, max_tokens=2)).status_code == 200


async def test_more_prompts_than_the_line_holds_are_refused_before_any_is_read(server: Server) -> None:
    reply = await server.post("/generate", prompts=["x"] * 257)
    assert reply.status_code == 400
    assert "257 prompts; the line holds at most 256" in reply.json()["error"]["message"]
