"""Anybody's server: what it takes is found out by asking, and what it doesn't make isn't measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from bench.virtual_time import Blocks, VirtualClock, piece, usage
from everystep.analysis.load import Arrival
from everystep.bench.apis import Completions
from everystep.bench.foreign import ForeignServer, found_out, listed_model
from everystep.bench.passes import BenchFailed

Body = dict[str, Any]


class Server:
    """OpenAI's completions with this server's own habits."""

    def __init__(
        self, refuses: Callable[[Body], bool], ends_early: Callable[[Body], bool] = lambda body: False
    ) -> None:
        self.bodies: list[Body] = []
        self.models: list[dict[str, str]] = [{"id": "some-model", "owned_by": "vllm"}]
        self._refuses = refuses
        self._ends_early = ends_early

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": self.models})
        assert request.url.path == "/v1/completions"
        body = json.loads(request.content)
        self.bodies.append(body)
        if self._refuses(body):
            return httpx.Response(400, json={"error": {"message": "I don't take that"}})
        count = 2 if self._ends_early(body) else body["max_tokens"]
        num_prompt_tokens = len(body["prompt"] if isinstance(body["prompt"], list) else body["prompt"].split()) + 1
        pieces = [piece("length" if number == count - 1 else None) for number in range(count)]
        whole = b"".join([*pieces, usage(num_prompt_tokens, count)])
        return httpx.Response(200, stream=Blocks(VirtualClock(), [(0.0, whole)]))

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self), base_url="http://there/v1")


async def asked_of(server: Server) -> tuple[Completions, range]:
    async with server.http() as http:
        return await found_out(http, "some-model", "it")


async def test_one_that_takes_everything_gets_token_ids_and_both_fields_that_force_full_answers() -> None:
    api, token_ids = await asked_of(Server(lambda body: False))
    assert api.takes_token_ids
    assert api.extras.keys() == {"ignore_eos", "min_tokens"}
    assert token_ids == range(1000, 30_000)
    assert json.loads(api.body([1, 2], 7))["min_tokens"] == 7


async def test_one_that_knows_no_min_tokens_is_asked_without() -> None:
    api, _ = await asked_of(Server(lambda body: "min_tokens" in body))
    assert (api.takes_token_ids, set(api.extras)) == (True, {"ignore_eos"})


async def test_one_of_a_small_vocabulary_is_asked_for_small_ids() -> None:
    _, token_ids = await asked_of(Server(lambda body: max(body["prompt"]) >= 2_500))
    assert token_ids == range(1000, 2_000)


async def test_one_that_takes_text_alone_gets_as_many_words() -> None:
    server = Server(lambda body: isinstance(body["prompt"], list))
    api, _ = await asked_of(server)
    assert not api.takes_token_ids
    assert len(server.bodies[-1]["prompt"].split()) == 16


async def test_one_that_stops_at_an_end_of_text_whatever_it_is_sent_is_refused() -> None:
    with pytest.raises(BenchFailed, match=r"it at http://there/v1/ can't be measured: .*2 tokens of 8: not like with"):
        await asked_of(Server(lambda body: False, ends_early=lambda body: True))


async def test_one_that_ignores_an_end_of_text_only_where_min_tokens_says_so_is_asked_that_way() -> None:
    api, _ = await asked_of(Server(lambda body: False, ends_early=lambda body: "min_tokens" not in body))
    assert "min_tokens" in api.extras


async def test_one_that_refuses_all_is_named_with_its_words() -> None:
    with pytest.raises(BenchFailed, match=r"can't be measured: 400: .*I don't take that"):
        await asked_of(Server(lambda body: True))


async def test_the_model_is_the_first_listed_or_the_one_named_and_tells_whose_server_it_is() -> None:
    server = Server(lambda body: False)
    async with server.http() as http:
        assert (await listed_model(http, None)).name == "some-model"
        assert (await listed_model(http, "other")).name == "other"
        assert (await listed_model(http, None)).owner == "vllm"
        server.models = []
        with pytest.raises(BenchFailed, match="lists no model: give --url-model"):
            await listed_model(http, None)


async def test_a_closed_load_is_a_request_per_prompt() -> None:
    server = Server(lambda body: False)
    async with server.http() as http:
        contender = ForeignServer(http, Completions("some-model", "/completions"), "vllm", "it")
        measured = await contender.measure([[1, 2], [3, 4], [5, 6]], 4)
        served = await contender.serve([Arrival(0.0, 2, 3)], [[1, 2]])
    assert [body["prompt"] for body in server.bodies] == [[1, 2], [3, 4], [5, 6], [1, 2]]
    assert (measured.num_tokens, [len(times) for times in measured.arrivals_s]) == (12, [4, 4, 4])
    assert served.outcome.answers[0].num_tokens == 3
