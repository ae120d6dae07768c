"""``GET /``: the page for whoever may have it, and for a browser without the key the page that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from api.harness import Server, serving
from everystep.api.page.document import live_page

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
KEY = {"x-api-key": "the-key"}


@pytest.fixture
async def locked() -> AsyncIterator[Server]:
    async with serving(api_key=("the-key",)) as ready:
        yield ready


def check_is_page(reply: httpx.Response, status: int) -> None:
    page = live_page()
    assert (reply.status_code, reply.content) == (status, page.body)
    told = {name: reply.headers[name] for name in (
        "content-type", "content-security-policy", "cache-control", "cross-origin-opener-policy", "referrer-policy",
        "x-content-type-options",
    )}  # fmt: skip
    assert told == {
        "content-type": "text/html; charset=utf-8", "content-security-policy": page.policy,
        "cache-control": "no-cache", "cross-origin-opener-policy": "same-origin", "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }  # fmt: skip


def check_is_refused(reply: httpx.Response) -> None:
    assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_failed")
    assert "content-security-policy" not in reply.headers


@pytest.mark.parametrize("headers", [{}, BROWSER, {"accept": "application/json"}, {"accept": ""}])
async def test_without_keys_everybody_of_this_machine_gets_the_page(server: Server, headers: dict[str, str]) -> None:
    reply = await server.http.get("/", headers=headers)
    check_is_page(reply, 200)
    assert reply.headers["x-request-id"]


async def test_with_the_key_it_comes_as_ever(locked: Server) -> None:
    for headers in (KEY, KEY | BROWSER, {"authorization": "Bearer the-key"}):
        check_is_page(await locked.http.get("/", headers=headers), 200)


@pytest.mark.parametrize("key", [{}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}])
@pytest.mark.parametrize("accept", [BROWSER["accept"], "text/html", "TEXT/HTML", "application/json, text/html;q=0.1"])
async def test_a_browser_without_the_key_gets_the_same_page_as_401(
    locked: Server, key: dict[str, str], accept: str
) -> None:
    reply = await locked.http.get("/", headers={"accept": accept, **key})
    check_is_page(reply, 401)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["x-request-id"]


@pytest.mark.parametrize(
    "headers", [{}, {"accept": ""}, {"accept": "*/*"}, {"accept": "application/json"}, {"accept": "text/*"}]
)
async def test_a_program_without_the_key_gets_its_error(locked: Server, headers: dict[str, str]) -> None:
    check_is_refused(await locked.http.get("/", headers=headers))


async def test_the_page_says_nothing_of_the_server_it_comes_from(locked: Server) -> None:
    async with serving(served_model_name="a-secret-model", max_num_seqs=3) as other:
        pages = {(await one.http.get("/", headers=BROWSER)).content for one in (locked, other)}
    assert len(pages) == 1


async def test_no_other_route_and_no_other_method_gets_it_instead_of_the_error(locked: Server) -> None:
    for path in ("/figures", "/steps", "/metrics", "/nope", "//", "/index.html", "/%2f", "/health/x"):
        url = locked.http.base_url.copy_with(raw_path=path.encode())
        check_is_refused(await locked.http.get(url, headers=BROWSER))
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        check_is_refused(await locked.http.request(method, "/", headers=BROWSER))
    assert (await locked.http.head("/", headers=BROWSER)).status_code == 401


async def test_it_answers_get_alone(server: Server) -> None:
    for method in ("HEAD", "POST", "PUT", "DELETE"):
        reply = await server.http.request(method, "/")
        assert (reply.status_code, reply.headers["allow"]) == (405, "GET")


async def test_a_query_is_refused_as_on_every_route(server: Server) -> None:
    reply = await server.http.get("/?key=x", headers=BROWSER)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "key")


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
async def test_without_keys_a_foreign_name_gets_no_page(server: Server, headers: dict[str, Any]) -> None:
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        check_is_page(await http.get("/", headers=BROWSER), 200)
        check_is_refused(await http.get("/", headers=BROWSER | headers))


async def test_it_comes_while_the_engine_is_away(server: Server) -> None:
    server.engine.stop_accepting()
    assert (await server.http.get("/health/ready")).status_code == 503
    check_is_page(await server.http.get("/", headers=BROWSER), 200)
