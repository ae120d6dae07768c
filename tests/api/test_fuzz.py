"""Every field of every endpoint, fuzzed from our own OpenAPI description with schemathesis.

Data that the description allows is served, or refused for a cause that no schema can express; data that it doesn't
allow is refused; every reply is of the described status, content type and shape; and the server lives.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from api.harness import Server, serving

load_all_checks()
CHECKED = CHECKS.get_by_names(["content_type_conformance", "status_code_conformance", "response_schema_conformance"])
REJECTION = CHECKS.get_by_names(["negative_data_rejection"])
NEVER_ENDS = "/steps/stream"
# (type, param) of refusals whose cause is in no one field: the schema allows each alone
TOGETHER_WRONG: dict[tuple[str, str | None], str] = {
    ("invalid_request", "prompt"): "a text without a token, or more prompts than the line holds",
    ("invalid_request", "prompts"): "a text without a token",
    ("invalid_request", None): "more sequences than the line holds",
    ("prompt_too_long", "prompt"): "longer in tokens than the context",
    ("prompt_too_long", "prompts"): "longer in tokens than the context",
    ("prompt_too_long", "messages"): "longer in tokens than the context",
    ("prompt_too_long", "max_tokens"): "prompt and output together",
    ("prompt_too_long", None): "prompt and output together",
    ("request_timeout", None): "timeout_s may be as short as a client likes",
    ("invalid_parameter", "min_tokens"): "more than max_tokens",
    ("invalid_parameter", "max_tokens"): "0 without echo; unlike max_completion_tokens",
    ("invalid_parameter", "stream_options"): "without stream",
    ("invalid_parameter", "top_logprobs"): "without logprobs",
    ("invalid_parameter", "logit_bias"): "keys are token ids",
    ("unsupported_option", "logprobs"): "with echo",
    ("unsupported_option", "best_of"): "other than n",
    ("invalid_parameter", "messages"): "refused by the chat template",
}


class Fuzz:
    """Requests by schemathesis, sent to the application on its own event loop."""

    def __init__(self, server: Server, max_examples: int) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.schema = schemathesis.openapi.from_dict(server.app.openapi())
        self.max_examples = max_examples
        self.num_served: Counter[str] = Counter()
        self.num_refused: Counter[str] = Counter()

    def run(self) -> None:
        """In another thread than the application's."""
        for result in self.schema.get_all_operations():
            operation = result.ok()
            if operation.path == NEVER_ENDS:
                continue
            self._try(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), self.check_right)
            has_parameters = bool(operation.body.items) or bool(operation.query.items)
            if has_parameters:
                self._try(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), self.check_wrong)

    def _try(self, cases: Any, check: Callable[[Any], None]) -> None:
        @settings(
            max_examples=self.max_examples,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=cases)
        def each(case: Any) -> None:
            check(case)

        each()

    def check_right(self, case: Any) -> None:
        case.body = with_whole_ids(case.body)
        reply = self.send(case)
        label = case.operation.label
        if reply.status_code == 200:
            self.num_served[label] += 1
        elif case.path_parameters:
            assert reply.status_code == 404, reply.text  # a name or an id that nobody has
        elif reply.status_code == 503:
            assert label == "POST /generate_vllm", reply.text
        else:
            error = error_of(reply)
            assert (error["type"], error["param"]) in TOGETHER_WRONG, (reply.text, case.body)
        case.validate_response(reply, checks=CHECKED)

    def check_wrong(self, case: Any) -> None:
        reply = self.send(case)
        assert reply.status_code < 500 or error_of(reply)["type"] == "vllm_absent", (reply.text, case.body)
        if reply.status_code >= 400:
            assert error_of(reply)["message"]
            self.num_refused[case.operation.label] += 1
        case.validate_response(reply, checks=CHECKED + REJECTION)

    def send(self, case: Any) -> httpx.Response:
        arguments = case.as_transport_kwargs(base_url="http://tiny")
        names = ("method", "url", "headers", "data", "json", "params", "cookies", "files")
        prepared = requests.Request(**{name: arguments[name] for name in names if name in arguments}).prepare()
        sending = self.server.http.request(
            prepared.method or "", prepared.url or "", content=prepared.body, headers=dict(prepared.headers)
        )
        return asyncio.run_coroutine_threadsafe(sending, self.loop).result()


def with_whole_ids(body: Any) -> Any:
    """To JSON Schema ``7.0`` is an integer.  Our numbers are as lenient, our token ids aren't."""
    if not isinstance(body, dict):
        return body
    return {name: _whole(value) if name in ("prompt", "tokens") else value for name, value in body.items()}


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) else value


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """In our shape, or the test ends here."""
    error = reply.json()["error"]
    assert {"type", "message", "param"} <= error.keys()
    return dict(error)


async def fuzz(max_examples: int) -> Fuzz:
    async with serving() as server:
        before = (await server.complete("still", max_tokens=3)).json()["choices"]
        fuzz = Fuzz(server, max_examples)
        await asyncio.to_thread(fuzz.run)
        assert (await server.complete("still", max_tokens=3)).json()["choices"] == before
        assert server.engine.status.is_ready
        return fuzz


async def test_what_the_description_allows_is_served_and_what_it_forbids_is_refused() -> None:
    done = await fuzz(12)
    posts = ["/basic_generate", "/generate", "/generate_stream", "/try", "/v1/completions",
             "/v1/chat/completions", "/tokenize", "/detokenize"]  # fmt: skip
    assert all(done.num_served[f"POST {path}"] > 0 for path in posts), done.num_served
    assert all(done.num_refused[f"POST {path}"] > 5 for path in posts), done.num_refused


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_the_description_allows_is_served_and_what_it_forbids_is_refused_many_times() -> None:
    done = await fuzz(150)
    print(json.dumps({"served": done.num_served, "refused": done.num_refused}, indent=1))
