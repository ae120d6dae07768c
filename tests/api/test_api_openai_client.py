"""The official ``openai`` client against a real HTTP server on a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
import uvicorn

from api.harness import FOREVER, Server, ids_of, serving

HI = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
MESSAGES: Any = [{"role": "user", "content": "Hi"}]
TEXT = "Hello 😀, how are you?"


class QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Served:
    server: Server
    client: openai.AsyncOpenAI
    sync_client: openai.OpenAI


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(api_key=("key",)) as server:
        server.runner.say(HI, TEXT)
        server.runner.say("Hi", TEXT)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            config = uvicorn.Config(server.app, lifespan="off", log_config=None, http="httptools")
            http = QuietServer(config)
            task = asyncio.create_task(http.serve(sockets=[sock]))
            options: Any = {
                "base_url": f"http://127.0.0.1:{sock.getsockname()[1]}/v1",
                "api_key": "key",
                "max_retries": 0,
                "timeout": 30,
            }
            async with openai.AsyncOpenAI(**options) as client:
                with openai.OpenAI(**options) as sync_client:
                    yield Served(server, client, sync_client)
            http.should_exit = True
            await task


async def test_models_are_listed_and_found(served: Served) -> None:
    assert [model.id async for model in served.client.models.list()] == ["tiny"]
    assert (await served.client.models.retrieve("tiny")).owned_by == "everystep"
    with pytest.raises(openai.NotFoundError):
        await served.client.models.retrieve("org/other")


async def test_a_completion(served: Served) -> None:
    reply = await served.client.completions.create(model="tiny", prompt="Hi", max_tokens=40)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (TEXT, "stop")
    assert reply.usage is not None
    assert reply.usage.completion_tokens == len(ids_of(TEXT)) + 1
    assert reply._request_id is not None


async def test_a_streamed_completion_with_its_usage(served: Served) -> None:
    stream = await served.client.completions.create(
        model="tiny", prompt="Hi", max_tokens=40, stream=True, stream_options={"include_usage": True}
    )
    parts = [chunk async for chunk in stream]
    assert "".join(part.choices[0].text for part in parts if part.choices) == TEXT
    assert parts[-1].usage is not None
    assert parts[-1].usage.prompt_tokens == len(ids_of("Hi"))


async def test_a_chat_whole_and_streamed(served: Served) -> None:
    reply = await served.client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert reply.choices[0].message.content == TEXT
    stream = await served.client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    parts = [chunk.choices[0] async for chunk in stream]
    assert "".join(part.delta.content or "" for part in parts) == TEXT
    assert (parts[0].delta.role, parts[-1].finish_reason) == ("assistant", "stop")


async def test_a_chat_goes_on_with_what_the_client_was_given(served: Served) -> None:
    first = (await served.client.chat.completions.create(model="tiny", messages=MESSAGES)).choices[0].message
    turns = [*MESSAGES, first.model_dump(), {"role": "user", "content": "Go on"}]
    reply = await served.client.chat.completions.create(model="tiny", messages=turns, max_completion_tokens=2)
    assert reply.choices[0].message.role == "assistant"


async def test_the_clients_helper_for_streams_puts_a_chat_together(served: Served) -> None:
    async with served.client.chat.completions.stream(model="tiny", messages=MESSAGES) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


async def test_logprobs_come_as_the_clients_own_types(served: Served) -> None:
    chat = await served.client.chat.completions.create(
        model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=1, max_tokens=2
    )
    content = chat.choices[0].logprobs and chat.choices[0].logprobs.content
    assert content is not None
    assert bytes(content[0].bytes or []) == b"H"
    text = await served.client.completions.create(model="tiny", prompt="Hi", logprobs=1, max_tokens=2)
    assert text.choices[0].logprobs is not None
    assert text.choices[0].logprobs.text_offset == [0, 1]


async def test_extensions_go_in_the_extra_body(served: Served) -> None:
    extra = {"top_k": 5, "min_p": 0.1, "ignore_eos": True, "policy": "per_token", "priority": 3, "min_tokens": 1}
    await served.client.completions.create(model="tiny", prompt="x", max_tokens=2, extra_body=extra)
    sequence = served.server.runner.last_seen
    assert (sequence.policy, sequence.priority, sequence.params.top_k) == ("per_token", 3, 5)


async def test_errors_are_the_clients_own_types(served: Served) -> None:
    create: Any = served.client.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        await create(model="gpt-4", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        await create(model="tiny", prompt="x", temperature=-1)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_parameter")
    with pytest.raises(openai.AuthenticationError):
        await served.client.with_options(api_key="wrong").models.list()


async def test_a_failure_in_a_stream_is_raised(served: Served) -> None:
    runner = served.server.runner
    runner.hold()
    stream = await served.client.completions.create(
        model="tiny", prompt="x", max_tokens=9, stream=True, extra_body={"ignore_eos": True}
    )
    await served.server.run_steps(1)
    runner.fails[runner.last_seen.sequence_id] = "the row broke"
    runner.release()
    with pytest.raises(openai.APIError, match="the row broke"):
        [chunk async for chunk in stream]


async def test_the_synchronous_client_is_served_too(served: Served) -> None:
    def talk() -> tuple[str | None, str]:
        chat = served.sync_client.chat.completions.create(model="tiny", messages=MESSAGES)
        stream = served.sync_client.completions.create(model="tiny", prompt="Hi", max_tokens=40, stream=True)
        return chat.choices[0].message.content, "".join(chunk.choices[0].text for chunk in stream)

    assert await asyncio.to_thread(talk) == (TEXT, TEXT)


async def test_closing_a_stream_or_cancelling_a_request_ends_its_sequences(served: Served) -> None:
    metrics = served.server.engine.observer.metrics
    endless: Any = {"model": "tiny", "prompt": "x", "max_tokens": FOREVER, "n": 2, "extra_body": {"ignore_eos": True}}
    served.server.runner.hold()
    stream = await served.client.completions.create(**endless, stream=True)
    await served.server.run_steps(2)
    async for _ in stream:
        break
    await stream.close()
    request = asyncio.create_task(served.client.completions.create(**endless))
    while metrics.num_ended["continuous", "aborted"] < 2:
        await asyncio.sleep(0.01)
    await served.server.run_steps(3)
    request.cancel()
    while metrics.num_ended["continuous", "aborted"] < 4:
        await asyncio.sleep(0.01)
    assert metrics.num_accepted["continuous"] == 4


async def test_many_streams_at_once_each_get_their_own_text(served: Served) -> None:
    texts = {f"prompt {i}": f" answer {i} 😀" for i in range(40)}
    for prompt, text in texts.items():
        served.server.runner.say(prompt, text)

    async def stream(prompt: str) -> str:
        chunks = await served.client.completions.create(model="tiny", prompt=prompt, max_tokens=40, stream=True)
        return "".join([chunk.choices[0].text async for chunk in chunks])

    assert await asyncio.gather(*map(stream, texts)) == list(texts.values())
