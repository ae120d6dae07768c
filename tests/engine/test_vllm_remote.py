"""A vLLM server elsewhere as a lane: streams, aborts, errors, absence, and its own counts."""

import asyncio
import dataclasses
import socket

import pytest

from engine.vllm_server import VllmServer, vllm_server
from engine.vllm_stand_in import tokens_after
from everystep.engine.client import EngineClient
from everystep.errors import EngineFailed, EngineUnavailable, InvalidRequest, PromptTooLong, UnsupportedOption
from everystep.types import FinishReason

DEADLINE_S = 30.0


@pytest.fixture
async def server(tokenizer_file):
    async with vllm_server(tokenizer_file) as server:
        yield server


@pytest.fixture
def tokenizer_file(make_settings):
    return f"{make_settings().model}/tokenizer.json"


@pytest.fixture
async def connect(make_settings):
    clients = []

    async def connect(url, *, is_there=True, **settings):
        client = EngineClient.in_process(make_settings(drain_timeout=0.0, vllm_url=url, **settings))
        clients.append(client)
        await client.start()
        if is_there:
            await until(lambda: why_not(client) == "")
        return client

    yield connect
    for client in clients:
        await client.close()


def why_not(client):
    try:
        client.check_ready("vllm")
    except EngineUnavailable as error:
        return error.message
    return ""


async def until(is_so):
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def collect(generation):
    tokens, ends = {}, {}
    async for delta in generation:
        tokens.setdefault(delta.sequence_id, []).extend(token.token_id for token in delta.tokens)
        if delta.finish_reason:
            assert delta.sequence_id not in ends, "a second end"
            ends[delta.sequence_id] = delta
    return tokens, ends


async def test_every_sequence_has_a_stream_of_its_own_however_many(server, connect, make_request):
    client = await connect(server.url + "/v1/")
    prompts = tuple((5, i) for i in range(110))  # above the connections that clients usually allow themselves
    server.gate.clear()
    generation = client.submit(make_request(*prompts, policy="vllm"))
    await until(lambda: server.num_running == 110)
    server.gate.set()
    async with generation:
        tokens, ends = await collect(generation)
    assert [tokens[name] for name in generation.sequence_ids] == [tokens_after(prompt, 8) for prompt in prompts]
    assert {end.finish_reason for end in ends.values()} == {FinishReason.LENGTH}
    assert {body["model"] for body in server.bodies} == {"theirs"}


async def test_leaving_closes_the_connections_and_the_server_s_count_is_shown(server, connect, make_request):
    client = await connect(server.url)
    server.gate.clear()
    async with client.submit(make_request((1,), (2,), policy="vllm")) as generation:
        await until(lambda: all(choice.is_started for choice in generation.choices))
        await until(lambda: client.observer.metrics.vllm.load.num_running == 2)
    _, ends = await collect(generation)
    assert [end.finish_reason for end in ends.values()] == [FinishReason.ABORTED] * 2
    await until(lambda: server.num_running == 0)
    await until(lambda: client.observer.metrics.vllm.load.num_running == 0)


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("refuse", InvalidRequest, "HTTP 400: it is refuse"),
        ("full", EngineUnavailable, "HTTP 503: it is full"),
        ("broken", EngineFailed, "HTTP 500: it is broken"),
        ("cut", EngineFailed, "the connection broke"),
        ("stop early", EngineFailed, "ended before the text did"),
        ("error later", EngineFailed, "it broke"),
        ("no ids", EngineFailed, "no token ids"),
    ],
)
async def test_what_goes_wrong_at_the_server_is_an_end_with_its_words(server, connect, make_request, mode, kind, words):
    client = await connect(server.url)
    server.mode = mode
    async with client.submit(make_request(policy="vllm")) as generation:
        _, ends = await asyncio.wait_for(collect(generation), DEADLINE_S)
    assert type(ends["r-0"].failure) is kind
    assert words in ends["r-0"].error
    assert server.url in ends["r-0"].error
    server.mode = "well"
    async with client.submit(make_request(policy="vllm", request_id="next")) as generation:
        _, ends = await collect(generation)
    assert ends["next-0"].finish_reason is FinishReason.LENGTH


async def test_a_server_that_isn_t_there_yet_is_waited_for_while_our_lanes_serve(tokenizer_file, connect, make_request):
    server = VllmServer(tokenizer_file)
    address, url = server.socket.getsockname(), server.url
    server.socket.close()
    client = await connect(url, is_there=False)
    await until(lambda: f"vLLM at {url} isn't usable" in why_not(client))
    await until(lambda: client.status.is_ready)
    with pytest.raises(EngineUnavailable, match="isn't usable"):
        client.submit(make_request(policy="vllm"))
    server.socket = socket.create_server(address)
    await server.start()
    await until(lambda: why_not(client) == "")
    async with client.submit(make_request(policy="vllm")) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.LENGTH
    await server.stop()
    await until(lambda: "isn't usable" in why_not(client))


async def test_a_server_with_another_model_is_refused_by_name(server, connect):
    server.mode = "another model"
    client = await connect(server.url, is_there=False)
    await until(lambda: "theirs, whose tokenizer isn't that of" in why_not(client))


async def test_a_server_s_key_is_sent(server, connect):
    server.api_key = "secret"
    client = await connect(server.url, is_there=False)
    await until(lambda: "HTTP 401" in why_not(client))
    await connect(server.url, vllm_api_key="secret")


async def test_the_server_s_context_is_the_limit(server, connect, make_request):
    client = await connect(server.url, runner="vllm")
    info = await asyncio.wait_for(client.wait_ready(), DEADLINE_S)
    assert info.max_model_len == 512
    with pytest.raises(PromptTooLong):
        client.submit(make_request(tuple([5] * 510), policy="vllm", max_tokens=8))


async def test_a_priority_that_the_server_may_ignore_is_refused(server, connect, make_request):
    client = await connect(server.url)
    with pytest.raises(UnsupportedOption, match="priority=3: not with --vllm-url"):
        client.submit(dataclasses.replace(make_request(policy="vllm"), priority=3))
    assert server.bodies == []
