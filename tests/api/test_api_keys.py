"""With a key set, every route wants one but health's; without, none does."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from api.harness import Call, Server, serving

KEYS = ("first-key", "second+key/with=signs")
EXPECTED = {
    "/basic_generate", "/generate", "/generate_stream", "/generate_vllm", "/v1/models", "/v1/models/{name}",
    "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/version", "/metrics", "/steps",
    "/steps/stream", "/steps/trace", "/requests/{request_id}", "/health", "/health/live", "/health/ready",
    "/engine", "/figures", "/try", "/", "/docs", "/openapi.json",
}  # fmt: skip


HEALTH = {"/health", "/health/live", "/health/ready"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")
LIKE_A_KEY: list[Any] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": "first-key"},
    {"authorization": "Basic first-key"},
    {"authorization": "Basic Zmlyc3Qta2V5Og=="},  # first-key:
    {"authorization": "Bearer first-key2"},
    {"authorization": "Bearer first-ke"},
    {"authorization": "Bearer FIRST-KEY"},
    {"authorization": "Bearer first-key second+key/with=signs"},
    {"authorization": "Bearer first-key,second+key/with=signs"},
    {"authorization": "Bearer\tfirst-key"},
    {"authorization": 'Bearer "first-key"'},
    {"proxy-authorization": "Bearer first-key"},
    {"cookie": "api_key=first-key; x-api-key=first-key"},
    {"x-api-key": ""},
    {"x-api-key": "wrong"},
    {"x-api-key": "Bearer first-key"},
    {"x-api-key": "first-key\x00"},
    {"x-api-key": "zweiter-Schlüssel".encode()},
    {"x-api-key": b"\xff\xfe"},
    {"x-api-key": "k" * 2**16},
    [("x-api-key", "first"), ("x-api-key", "-key")],
    [*[("x-api-key", "wrong")] * 4, ("x-api-key", "first-key")],  # who tries so many makes no more work
]


async def ask(server: Server, method: str, path: str, headers: Any = None) -> httpx.Response:
    """The path as it stands: no client's tidying."""
    url = server.http.base_url.copy_with(raw_path=path.encode())
    return await server.http.request(method, url, headers=headers)


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    async with serving(api_key=KEYS) as ready:
        yield ready


def all_paths(server: Server) -> set[str]:
    """Every path the application serves, from the routers themselves, those left out of the documentation included."""

    def walk(routes: list) -> Iterator[str]:
        for route in routes:
            if hasattr(route, "path"):
                yield route.path.replace(":path}", "}")
            else:  # a router that was included
                yield from walk(next(value for value in vars(route).values() if hasattr(value, "routes")).routes)

    return set(walk(server.app.routes))


async def test_the_walk_finds_every_route(server: Server) -> None:
    paths = all_paths(server)
    assert paths >= EXPECTED
    assert paths >= set(server.app.openapi()["paths"])


async def test_every_route_but_healths_wants_a_key_by_any_method(locked: Server) -> None:
    unknown = {"/nope", "/healthy", "/health/", "/health/deep", "//health"}
    for path in all_paths(locked) | unknown:
        for method in METHODS:
            reply = await ask(locked, method, path)
            if path in HEALTH:
                assert reply.status_code == (200 if method == "GET" else 405)
            else:
                assert reply.status_code == 401, path
                assert method == "HEAD" or reply.json()["error"]["type"] == "authentication_failed"
                assert reply.headers["www-authenticate"] == "Bearer"


async def test_a_browser_without_a_key_gets_a_page_that_asks_for_it_where_there_is_one_and_nothing_else(
    locked: Server,
) -> None:
    pages = set()
    for path in all_paths(locked) - HEALTH:
        reply = await ask(locked, "GET", path, {"accept": "text/html"})
        assert reply.status_code == 401, path
        if reply.headers["content-type"].startswith("text/html"):
            pages.add(path)
            assert "script-src 'sha256-" in reply.headers["content-security-policy"]
        else:
            assert reply.json()["error"]["type"] == "authentication_failed"
    assert pages == {"/", "/docs"}


async def test_no_route_lets_in_whoever_has_something_like_a_key(locked: Server) -> None:
    for path in all_paths(locked) - HEALTH:
        for headers in LIKE_A_KEY:
            for method in ("GET", "POST"):
                assert (await ask(locked, method, path, headers)).status_code == 401, (path, headers)
        for query in (
            "api_key=first-key",
            "key=first-key",
            "access_token=first-key",
            "authorization=Bearer%20first-key",
        ):
            assert (await ask(locked, "GET", f"{path}?{query}")).status_code == 401, (path, query)


async def test_who_isnt_let_in_cant_tell_a_route_from_none_or_a_body_from_another(locked: Server) -> None:
    replies = [
        await locked.http.request(method, path, content=content, headers={"x-request-id": "same", **headers})
        for method, path, content, headers in (
            ("GET", "/version", b"", {}),
            ("GET", "/nope", b"", {}),
            ("DELETE", "/generate", b"", {}),
            ("POST", "/generate", b"{", {}),
            ("POST", "/generate", b'{"prompts": []}', {"content-type": "application/json"}),
            ("POST", "/generate", b"x" * 100, {"content-length": str(2**40)}),
        )
    ]
    assert {(reply.status_code, reply.content, str(reply.headers)) for reply in replies} == {
        (401, replies[0].content, str(replies[0].headers))
    }


async def test_the_refusal_comes_before_anything_of_the_body_is_read(locked: Server) -> None:
    async def nobody_reads() -> dict[str, Any]:
        raise AssertionError("the body was asked for")

    sent: list[Any] = []

    async def keep(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/generate", "raw_path": b"/generate", "query_string": b"",
             "headers": [(b"content-length", b"5")], "server": ("tiny", 80), "root_path": ""}  # fmt: skip
    await locked.app(scope, nobody_reads, keep)
    assert sent[0]["status"] == 401


async def test_a_web_socket_is_closed_for_whoever_has_no_key(locked: Server) -> None:
    sent: list[Any] = []

    async def connect() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def keep(message: Any) -> None:
        sent.append(message)

    for path in ("/steps", "/health"):
        scope = {"type": "websocket", "path": path, "headers": [(b"x-api-key", b"wrong")], "server": ("tiny", 80)}
        await locked.app(scope, connect, keep)
    assert sent == [{"type": "websocket.close", "code": 1008}] * 2


async def test_a_path_that_only_begins_like_healths_is_closed(locked: Server) -> None:
    for path in ("/health/../metrics", "/health%2f..", "/HEALTH", "health"):
        call = Call(locked.app, path, b"{}")
        await call.task
        assert call.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first-key"},
        {"authorization": "bearer  first-key"},
        {"x-api-key": "first-key"},
        {"authorization": "Bearer second+key/with=signs"},
        {"authorization": "Basic abc", "x-api-key": "first-key"},
        [("x-api-key", "wrong"), ("x-api-key", "first-key")],
        [("authorization", "Bearer wrong"), ("authorization", "Bearer first-key"), ("x-api-key", "wrong")],
        [("x-api-key", "first-key"), ("authorization", "Bearer first-key")],
    ],
)
async def test_any_of_the_keys_opens(locked: Server, headers: Any) -> None:
    assert (await locked.http.get("/version", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", LIKE_A_KEY, ids=lambda headers: repr(headers)[:60])
async def test_nothing_else_does(locked: Server, headers: Any) -> None:
    assert (await locked.http.get("/version", headers=headers)).status_code == 401


async def test_each_key_is_compared_whether_or_not_one_before_it_is_the_right_one(monkeypatch: Any) -> None:
    compared: list[int] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or compare(a, b))
    async with serving(api_key=("one", "two", "three")) as ready:
        counts = []
        for key in ("one", "three", "none", ""):
            compared.clear()
            await ready.http.get("/version", headers={"x-api-key": key})
            counts.append(len(compared))
    assert counts == [3, 3, 3, 3]


async def test_without_a_key_all_is_open(server: Server) -> None:
    assert (await server.http.get("/version")).status_code == 200
