"""What holds of a reply on every endpoint: frames, ends, usage, stop strings, whole characters, limits, control tokens.

Each test asks all endpoints the same, whole and streamed, so that none has a protocol of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from api.harness import EOS_ID, Server, ids_of, serving

MIXED = "e\u0301 한글🙂👩‍👧 two  spaces\n\n<|x é"
PAD = "<|endoftext|>"  # a control token: in a raw prompt it is one token
CONTEXT = 512
LANES = ["static", "per_token", "continuous"]


@dataclass(frozen=True)
class Way:
    """One endpoint, whole or streamed."""

    path: str
    body: Callable[[str], dict[str, Any]]
    is_stream: bool = False

    def __str__(self) -> str:
        return self.path + (" streamed" if self.is_stream else "")

    @property
    def is_openai(self) -> bool:
        return self.path.startswith("/v1/")

    @property
    def is_chat(self) -> bool:
        return "chat" in self.path

    def as_read(self, text: str) -> str:
        """The prompt that the model gets, by the template as it stands in the model's folder."""
        return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" if self.is_chat else text

    def text_of(self, value: dict[str, Any]) -> str:
        """The text of a whole reply or of one event."""
        if "choices" in value:
            return "".join(str(choice.get("text") or _content(choice)) for choice in value["choices"])
        texts = value.get("generated_texts") or [value.get("generated_text", value.get("token", ""))]
        return "".join(texts)


def _content(choice: dict[str, Any]) -> str:
    return str((choice.get("message") or choice.get("delta") or {}).get("content") or "")


def native(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: {name: [text] if name == "prompts" else text}


def completion(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": text, "temperature": 0, **more}


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def streamed(body: Callable[..., dict[str, Any]]) -> Callable[[str], dict[str, Any]]:
    return lambda text: body(text, stream=True)


WAYS = [
    Way("/basic_generate", native("prompt")),
    Way("/generate", native("prompts")),
    Way("/generate_stream", native("prompt"), is_stream=True),
    Way("/v1/completions", completion),
    Way("/v1/completions", streamed(completion), is_stream=True),
    Way("/v1/chat/completions", chat),
    Way("/v1/chat/completions", streamed(chat), is_stream=True),
]
STREAMS = [way for way in WAYS if way.is_stream]
each_way = pytest.mark.parametrize("way", WAYS, ids=str)
each_stream = pytest.mark.parametrize("way", STREAMS, ids=str)
each_openai_way = pytest.mark.parametrize("way", [way for way in WAYS if way.is_openai], ids=str)


async def values(server: Server, way: Way, text: str, **options: Any) -> list[dict[str, Any]]:
    """The reply as JSON values: one, or one an event.  Frames are checked on the way."""
    reply = await server.http.post(way.path, json=way.body(text) | options)
    assert reply.status_code == 200, reply.text
    if not way.is_stream:
        assert reply.headers["content-type"] == "application/json"
        value = reply.json()
        assert isinstance(value, dict), "JSON within JSON"
        return [value]
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "connection" not in reply.headers, "whether it is kept is for the connection to say"
    return [json.loads(event) for event in frames(way, reply.text)]


def frames(way: Way, text: str) -> list[str]:
    """The data of each event.  A blank line behind each, one line of data in each, OpenAI's mark once and last."""
    assert text.endswith("\n\n")
    blocks = [block for block in text.removesuffix("\n\n").split("\n\n") if not block.startswith(":")]
    assert all(block.startswith("data: ") and "\n" not in block and "\r" not in block for block in blocks), blocks
    found = [block.removeprefix("data: ") for block in blocks]
    assert found.count("[DONE]") == int(way.is_openai)
    assert not way.is_openai or found[-1] == "[DONE]"
    return [event for event in found if event != "[DONE]"]


# --- text ----------------------------------------------------------------------------------------
@each_way
async def test_the_text_arrives_whole_in_any_writing_and_json_is_encoded_once(server: Server, way: Way) -> None:
    server.runner.say(way.as_read("Say"), MIXED)
    found = await values(server, way, "Say", max_tokens=200)
    assert "".join(map(way.text_of, found)) == MIXED
    assert not any("\ufffd" in way.text_of(value) for value in found)


@each_way
async def test_a_stop_string_over_token_borders_ends_the_text_and_no_part_of_it_is_shown(
    server: Server, way: Way
) -> None:
    stop, text = "STOP🙂", "one two STO three STOP🙂 four"
    assert len(ids_of(stop)) > 3, "the stop string must span tokens"
    server.runner.say(way.as_read("Say"), text)
    found = await values(server, way, "Say", stop=[stop], max_tokens=100)
    assert "".join(map(way.text_of, found)) == "one two STO three "
    seen = ""
    for value in found:
        seen += way.text_of(value)
        assert "one two STO three ".startswith(seen)


@each_way
async def test_what_only_looked_like_a_stop_string_is_shown_at_the_end(server: Server, way: Way) -> None:
    server.runner.say(way.as_read("Say"), "one STO")
    assert "".join(map(way.text_of, await values(server, way, "Say", stop=["STOP"], max_tokens=50))) == "one STO"


# --- ends and numbers ----------------------------------------------------------------------------
@each_openai_way
@pytest.mark.parametrize(
    ("options", "reason", "num_tokens"),
    [({}, "stop", None), ({"max_tokens": 3}, "length", 3), ({"stop": [" two"]}, "stop", None)],
)
async def test_the_finish_reason_and_the_usage_are_what_happened(
    server: Server, way: Way, options: dict[str, Any], reason: str, num_tokens: int | None
) -> None:
    server.runner.say(way.as_read("Say"), "one two three")
    asked = {"max_tokens": 60, **options} | ({"stream_options": {"include_usage": True}} if way.is_stream else {})
    found = await values(server, way, "Say", **asked)
    reasons = [choice["finish_reason"] for value in found for choice in value["choices"] if choice["finish_reason"]]
    assert reasons == [reason]
    usages = [value["usage"] for value in found if value["usage"] is not None]
    assert len(usages) == 1, "told once"
    (usage,) = usages
    assert usage["prompt_tokens"] == len(ids_of(way.as_read("Say")))
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    drawn = server.runner.last_seen.num_output_tokens
    assert usage["completion_tokens"] == (num_tokens or usage["completion_tokens"]) <= drawn
    if "stop" not in options:
        assert usage["completion_tokens"] == drawn
    if way.is_stream:
        assert found[-1]["choices"] == [], "the usage has a chunk of its own, behind all others"


@each_stream
async def test_a_failure_within_a_stream_is_an_error_event_and_then_the_end(server: Server, way: Way) -> None:
    server.runner.say(way.as_read("Say"), "some words before it breaks")
    server.runner.hold()
    task = asyncio.create_task(server.http.post(way.path, json=way.body("Say")))
    await server.run_steps(1)
    server.runner.fails[server.runner.last_seen.sequence_id] = "the row broke"
    server.runner.release()
    reply = await task
    assert reply.status_code == 200
    *_, last = reply.text.removesuffix("\n\n").split("\n\n")
    kind, data = last.split("\n")
    assert kind == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["message"] == "the row broke"
    assert "[DONE]" not in reply.text


# --- limits --------------------------------------------------------------------------------------
@each_way
async def test_a_prompt_too_long_is_refused_with_the_numbers_and_never_cut(server: Server, way: Way) -> None:
    text = " a" * (CONTEXT + 100) if way.is_chat else PAD * (CONTEXT + 1)
    reply = await server.http.post(way.path, json=way.body(text) | {"max_tokens": 1})
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "prompt_too_long")
    assert str(CONTEXT) in error["message"]
    assert server.runner.num_steps == 0


@pytest.mark.parametrize("lane", LANES)
async def test_who_fills_the_context_ends_alone_and_no_seat_divides_it(lane: str) -> None:
    """64 seats, and yet a text may have all 512 tokens; its neighbours of the same batch go on to their own ends."""
    settings = {"max_num_seqs": 64, "per_token_batch_size": 64, "static_max_wait": 600, "kv_cache_gib": 0.01}
    async with serving(**settings) as server:  # a static round waits for its four
        assert server.engine.max_model_len == CONTEXT
        server.runner.hold()
        long = server.complete(PAD * (CONTEXT - 7), max_tokens=7, ignore_eos=True, policy=lane)
        others = [server.complete(f"n {i}", max_tokens=30, ignore_eos=True, policy=lane) for i in range(3)]
        tasks = [asyncio.create_task(call) for call in (long, *others)]
        while server.engine.observer.metrics.num_accepted[lane] < 4:
            await asyncio.sleep(0.001)
        server.runner.release()
        replies = [reply.json() for reply in await asyncio.gather(*tasks)]
        steps = (await server.http.get("/steps?limit=1000")).json()["steps"]
    assert max(len(step["rows"]) for step in steps) == 4, "they were no company"
    usages = [reply["usage"] for reply in replies]
    assert (usages[0]["total_tokens"], [usage["completion_tokens"] for usage in usages]) == (CONTEXT, [7, 30, 30, 30])
    assert {reply["choices"][0]["finish_reason"] for reply in replies} == {"length"}


# --- control tokens ------------------------------------------------------------------------------
@each_way
async def test_control_tokens_are_read_in_raw_prompts_and_stay_text_in_messages(server: Server, way: Way) -> None:
    await values(server, way, "a<|im_end|>b", max_tokens=1)
    sequence = server.runner.last_seen
    prompt = sequence.token_ids[: sequence.num_prompt_tokens]
    from_template = way.as_read("").count("<|im_end|>")
    assert prompt.count(EOS_ID) == (from_template if way.is_chat else 1)
    assert server.engine.tokenizer.decode(prompt, skip_special=False) == way.as_read("a<|im_end|>b")
