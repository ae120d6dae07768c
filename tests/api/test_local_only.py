"""Without a key: programs of this machine are served, web pages that it shows and other machines are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from api.harness import serving
from everystep.api.local_only import is_loopback

HERE = "http://127.0.0.1:8000"


@asynccontextmanager
async def asked_at(url: str, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that believes its socket to be at ``url``."""
    async with (
        serving(**settings) as ready,
        httpx.AsyncClient(transport=httpx.ASGITransport(ready.app), base_url=url) as http,
    ):
        yield http


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1:8000"},
        {"host": "127.8.8.8"},
        {"host": "localhost:9000"},  # a tunnel's port
        {"host": "LOCALHOST"},
        {"host": "llm.localhost"},  # names below it mean this machine (RFC 6761, 6.3)
        {"host": "[::1]:8000"},
        {"host": "[::ffff:127.0.0.1]"},
        {"host": "named"},  # as in --host
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "http://localhost:3000"},
        {"origin": "https://[::1]"},
    ],
)
async def test_a_program_of_this_machine_is_served(headers: dict[str, str]) -> None:
    async with asked_at(HERE, host="named") as http:
        assert (await http.get("/version", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example"},
        {"host": "evillocalhost"},
        {"host": "user@127.0.0.1@evil.example"},
        {"host": "192.168.0.7"},
        {"host": "0.0.0.0"},
        {"host": ""},
        {"host": "["},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1@evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://["},
        {"origin": "chrome-extension://abc"},
        {"origin": "127.0.0.1"},
        {"host": b"\xff", "origin": HERE},
    ],
)
async def test_a_page_of_somebody_elses_is_refused_before_it_makes_work(headers: dict[str, Any]) -> None:
    async with asked_at(HERE) as http:
        for method, path in (
            ("GET", "/steps"),
            ("POST", "/generate"),
            ("GET", "/nope"),
            ("OPTIONS", "/v1/completions"),
        ):
            reply = await http.request(method, path, headers=headers)
            assert reply.status_code == 401
            assert "set an API key and send it, or start the server with --insecure-no-auth" in reply.text
        assert (await http.get("/health", headers=headers)).status_code == 200


async def test_the_way_out_is_a_key_or_a_word() -> None:
    foreign = {"host": "evil.example", "origin": "http://evil.example"}
    async with asked_at(HERE, api_key=("key",)) as http:
        assert (await http.get("/version", headers=foreign)).status_code == 401
        assert (await http.get("/version", headers=foreign | {"x-api-key": "key"})).status_code == 200
    async with asked_at(HERE, insecure_no_auth=True) as http:
        assert (await http.get("/version", headers=foreign)).status_code == 200


@pytest.mark.parametrize("url", ["http://192.168.0.7:8000", "http://[2001:db8::7]", "http://0.0.0.0:8000"])
async def test_an_application_that_somebody_elses_server_offers_to_the_network_serves_nobody_without_a_key(
    url: str,
) -> None:
    async with asked_at(url) as http:
        reply = await http.get("/version", headers={"host": "127.0.0.1"})
        assert reply.status_code == 401
        assert "only 127.0.0.1 is served, not" in reply.text
        assert (await http.get("/health/live")).status_code == 200
    async with asked_at(url, api_key=("key",)) as http:
        assert (await http.get("/version", headers={"x-api-key": "key"})).status_code == 200
    async with asked_at(url, insecure_no_auth=True) as http:
        assert (await http.get("/version")).status_code == 200


async def test_a_body_without_a_type_which_a_page_may_send_anywhere_makes_no_work() -> None:
    """A form's types, and none, need no leave of the server's (CORS: simple requests)."""
    async with asked_at(HERE) as http:
        for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            headers = {} if kind is None else {"content-type": kind}
            for path in ("/generate", "/v1/completions", "/tokenize"):
                body = b'{"prompts": ["a"], "prompt": "a", "model": "tiny"}'
                assert (await http.post(path, content=body, headers=headers)).status_code in (400, 415, 422)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "::ffff:127.9.9.9"])
def test_addresses_that_only_this_machine_reaches(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "10.0.0.1", "169.254.1.1", "fe80::1", "fe80::1%lo", "::ffff:10.0.0.1", "::ffff:0.0.0.0", "",
     "localhost", "127.1", "0x7f.1", "2130706433", "::127.0.0.1"],
)  # fmt: skip
def test_addresses_that_others_may_reach_and_what_is_none(address: str) -> None:
    assert not is_loopback(address)
