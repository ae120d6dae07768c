"""With a key set, every route wants one but health's; without, none does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from api.harness import Call, Server, serving

KEYS = ("first-key", "second+key/with=signs")
EXPECTED = {
    "/basic_generate", "/generate", "/generate_stream", "/generate_vllm", "/v1/models", "/v1/models/{name}",
    "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/version", "/metrics", "/steps",
    "/steps/stream", "/steps/trace", "/requests/{request_id}", "/health", "/health/live", "/health/ready",
    "/engine", "/docs", "/openapi.json",
}  # fmt: skip


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
    unknown = {"/", "/nope", "/healthy", "/health/", "/health/deep", "//health"}
    for path in all_paths(locked) | unknown:
        for method in ("GET", "POST", "OPTIONS", "DELETE"):
            reply = await locked.http.request(method, locked.http.base_url.copy_with(raw_path=path.encode()))
            if path in ("/health", "/health/live", "/health/ready"):
                assert reply.status_code == (200 if method == "GET" else 405)
            else:
                assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_failed"), path
                assert reply.headers["www-authenticate"] == "Bearer"


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
    ],
)
async def test_any_of_the_keys_opens(locked: Server, headers: dict) -> None:
    assert (await locked.http.get("/version", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "first-key"},
        {"authorization": "Basic first-key"},
        {"authorization": "Bearer first-key2"},
        {"authorization": "Bearer first-ke"},
        {"authorization": "Bearer FIRST-KEY"},
        {"x-api-key": ""},
        {"x-api-key": "wrong"},
    ],
)
async def test_nothing_else_does(locked: Server, headers: dict) -> None:
    assert (await locked.http.get("/version", headers=headers)).status_code == 401


async def test_the_key_itself_is_kept_nowhere_in_the_middleware(locked: Server) -> None:
    [keys] = [layer for layer in locked.app.user_middleware if layer.cls.__name__ == "ApiKeys"]
    made = keys.cls(locked.app, **keys.kwargs)
    assert not any(key in repr(vars(made)) for key in KEYS)


async def test_without_a_key_all_is_open(server: Server) -> None:
    assert (await server.http.get("/version")).status_code == 200
