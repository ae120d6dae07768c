"""``X-Request-Id`` of what the server itself answers, before the application or in its stead, and in its own lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.served import Server, serving
from cli.wire import Wire, request

ID = "mine-01"
FLAGS = ["--log-json", "--log-level", "debug", "--client-timeout", "1"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("cache"), *FLAGS) as ready:
        yield ready


def head(num_body_bytes: int, **headers: str) -> bytes:
    """Of a request whose body is announced, and comes or doesn't."""
    fields = {"content-length": str(num_body_bytes), "x-request-id": ID, **headers}
    return request("POST", "/basic_generate", b"", fields)


@pytest.mark.parametrize("part", ["nothing of the body", "a part of the body"])
def test_a_body_that_doesnt_arrive_in_time_is_answered_with_the_clients_id(server: Server, part: str) -> None:
    with Wire(server.url) as wire:
        wire.send(head(100) + (b"{" if part == "a part of the body" else b""))
        reply = wire.read_reply()
    assert (reply.status, reply.headers["x-request-id"]) == (408, ID)


def test_a_body_that_is_cut_short_is_answered_with_the_clients_id(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(head(100) + b"{")
        wire.half_close()
        reply = wire.read_reply()
    assert (reply.status, reply.headers["x-request-id"]) == (400, ID)


def test_a_body_that_is_announced_too_large_is_answered_with_the_clients_id(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(head(2**40))
        reply = wire.read_reply()
    assert (reply.status, reply.headers["x-request-id"]) == (413, ID)


@pytest.mark.parametrize("broken", [b"GET / HTTP/1.1\r\nx: " + b"a" * 2**17 + b"\r\n\r\n", b"\x00\x01\r\n\r\n"])
def test_what_has_no_head_that_could_be_read_gets_an_id_of_ours(server: Server, broken: bytes) -> None:
    with Wire(server.url) as wire:
        wire.send(broken)
        reply = wire.read_reply()
    assert reply.status in (400, 431)
    assert reply.headers["x-request-id"].startswith("req-")


def test_an_id_of_a_request_before_isnt_given_to_the_next_on_the_connection(server: Server) -> None:
    with Wire(server.url) as wire:
        assert wire.ask("GET", "/version", x_request_id=ID).headers["x-request-id"] == ID
        assert wire.ask("GET", "/version").headers["x-request-id"].startswith("req-")
        wire.send(b"\x00\x01\r\n\r\n")
        assert wire.read_reply().headers["x-request-id"].startswith("req-")


def test_the_list_of_accesses_names_each_by_its_id(tmp_path: Path) -> None:
    with serving(tmp_path, *FLAGS) as server:
        server.client.get("/version", headers={"x-request-id": "first"})
        server.client.get("/steps", headers={"x-request-id": "second"})
        server.process.terminate()
        _, said = server.end()
    lines = [json.loads(line) for line in said.splitlines()]
    accesses = {
        line["message"].split(" ")[3]: line["request_id"] for line in lines if line["logger"] == "uvicorn.access"
    }
    assert accesses == {"/version": "first", "/steps": "second"}
