"""Whatever bytes arrive, the reply is one of ours with a status below 500, and the server serves the next request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.harness import Call, Server, serving

JSON = {"content-type": "application/json"}
DEEP = b"[" * 200_000
DEEP_VALUE = b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}"
PATHS = ("/basic_generate", "/generate", "/generate_stream", "/generate_vllm", "/tokenize", "/detokenize",
         "/v1/completions", "/v1/chat/completions")  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"prompt"',
        b"{",
        b'{"prompt": "x"} trailing',
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\x00"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "x", "temperature": 1e999}',
        b'{"prompt": "x", "seed": ' + b"9" * 5_000 + b"}",
        DEEP,
        DEEP_VALUE,
        b'{"messages": ' + b'[{"content":' * 400 + b"1" + b"}]" * 400 + b"}",
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_a_body_that_is_no_request_is_refused_in_our_shape(server: Server, body: bytes) -> None:
    for path in PATHS:
        reply = await server.http.post(path, content=body, headers=JSON)
        assert reply.status_code == (400 if path.startswith("/v1/") else 422)
        assert reply.json()["error"]["message"]
    assert server.runner.num_steps == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", None])
async def test_a_body_of_another_type_is_refused_with_the_one_that_is_wanted(server: Server, kind: str | None) -> None:
    reply = await server.http.post(
        "/basic_generate", content=b'{"prompt": "x"}', headers={"content-type": kind} if kind else {}
    )
    assert reply.status_code == 422
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


async def test_of_a_field_given_twice_the_last_counts_as_everywhere(server: Server) -> None:
    body = b'{"prompt": "x", "max_tokens": "no", "max_tokens": 2}'
    assert (await server.http.post("/basic_generate", content=body, headers=JSON)).status_code == 200
    assert server.runner.last_seen.num_output_tokens == 2


# --- size ----------------------------------------------------------------------------------------
LIMIT = 4096


@pytest.fixture
async def small() -> AsyncIterator[Server]:
    async with serving(max_body_mib=LIMIT / 2**20, api_key=("key",)) as ready:
        ready.http.headers["x-api-key"] = "key"
        yield ready


def body_of(num_bytes: int) -> bytes:
    frame = b'{"prompts":[""],"max_tokens":1}'
    return frame.replace(b'""', b'"' + b"a" * (num_bytes - len(frame)) + b'"')


async def test_a_body_of_the_limit_is_read_and_one_more_byte_is_not(small: Server) -> None:
    at_limit = await small.http.post("/generate", content=body_of(LIMIT), headers=JSON)
    assert at_limit.json()["error"]["type"] == "prompt_too_long"
    over = await small.http.post("/generate", content=body_of(LIMIT + 1), headers=JSON)
    assert (over.status_code, over.json()["error"]["type"]) == (413, "body_too_large")
    assert str(LIMIT) in over.json()["error"]["message"]


async def test_a_body_that_announces_no_length_is_cut_off_at_the_limit(small: Server) -> None:
    num_sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal num_sent
        while True:
            num_sent += 1024
            yield b" " * 1024

    for path in PATHS:
        num_sent = 0
        reply = await small.http.post(path, content=endless(), headers=JSON)
        assert (reply.status_code, reply.json()["error"]["type"]) == (413, "body_too_large")
        assert num_sent <= LIMIT + 1024


async def test_a_length_of_any_number_of_digits_is_only_too_large(small: Server) -> None:
    reply = await small.http.post("/generate", content=b"{}", headers={**JSON, "content-length": "9" * 6000})
    assert reply.status_code == 413


async def test_nobody_without_a_key_gets_a_large_body_read(small: Server) -> None:
    del small.http.headers["x-api-key"]
    reply = await small.http.post("/generate", content=body_of(LIMIT + 1), headers=JSON)
    assert reply.status_code == 401


# --- anything at all -----------------------------------------------------------------------------
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["model", "prompt", "prompts", "messages", "tokens", "max_tokens", "n", "stop", "stream", "logprobs", "logit_bias",
     "stream_options", "tools", "seed", "temperature", "echo", "policy", "best_of", "truncate_prompt_tokens"]
)  # fmt: skip


async def test_no_json_makes_a_server_error(server: Server) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(path=st.sampled_from(PATHS), body=st.dictionaries(fields, values, max_size=6))
    def collect(path: str, body: dict[str, object]) -> None:
        cases.append((path, body))

    cases: list[tuple[str, dict[str, object]]] = []
    collect()
    for path, body in cases:
        whole = {"model": "tiny", **body, "max_tokens": 2} if path.startswith("/v1/") else body
        reply = await server.http.post(path, content=json.dumps(whole).encode(errors="replace"), headers=JSON)
        assert reply.status_code < 500 or path == "/generate_vllm", (path, whole, reply.text)
    assert (await server.post("/basic_generate", prompt="still here", max_tokens=1)).status_code == 200


async def test_replies_are_json_once(server: Server) -> None:
    reply: httpx.Response = await server.post("/basic_generate", prompt="x", max_tokens=1)
    assert isinstance(reply.json(), dict)
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/health", "/metrics", "/steps", "/steps/trace", "/version", "/v1/models", "/docs"])
async def test_a_route_that_takes_no_body_refuses_a_large_one_all_the_same(small: Server, path: str) -> None:
    reply = await small.http.request("GET", path, content=b" " * (LIMIT + 1), headers=JSON)
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "body_too_large")


async def test_a_body_that_ends_before_its_announced_end_is_nobodys_and_no_error_of_ours(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    class Half(Call):
        async def _receive(self) -> dict[str, Any]:
            if not self._is_body_sent:
                self._is_body_sent = True
                return {"type": "http.request", "body": self.body, "more_body": True}
            return {"type": "http.disconnect"}

    for path in PATHS:
        cut = Half(server.app, path, b'{"prompt": "x', {"content-length": "100"})
        await cut.task
        assert cut.status is None or cut.status < 500
    assert server.runner.num_steps == 0
    assert "unforeseen" not in caplog.text
