"""Ids in and out, unknown routes, and what nobody foresaw."""

from __future__ import annotations

import logging

import pytest

from api.harness import Server, events


async def test_a_sane_request_id_comes_back_and_another_does_not(server: Server) -> None:
    sane = "trace-01:ab.c_d"
    assert (await server.http.get("/version", headers={"x-request-id": sane})).headers["x-request-id"] == sane
    for strange in ("a b", "x" * 129, "a\tb", "<script>", "ü".encode(), ""):
        given = (await server.http.get("/version", headers={"x-request-id": strange})).headers["x-request-id"]
        assert given.startswith("req-")


async def test_replies_to_errors_carry_the_id_too(server: Server) -> None:
    for path in ("/nope", "/generate"):
        reply = await server.http.get(path, headers={"x-request-id": "mine"})
        assert reply.headers["x-request-id"] == "mine"


async def test_two_requests_of_one_id_are_two_generations(server: Server) -> None:
    headers = {"x-request-id": "same"}
    body = {"model": "tiny", "prompt": "x", "max_tokens": 1}
    first, second = [await server.http.post("/v1/completions", json=body, headers=headers) for _ in range(2)]
    assert first.json()["id"] != second.json()["id"]
    assert first.json()["id"].startswith("cmpl-same-")
    assert first.headers["x-generation-id"] == first.json()["id"]


async def test_the_generations_id_finds_its_life(server: Server) -> None:
    reply = await server.post("/basic_generate", prompt="x", max_tokens=1)
    life = await server.http.get(f"/requests/{reply.headers['x-generation-id']}")
    assert life.status_code == 200
    stream = await server.post("/generate_stream", prompt="x", max_tokens=1)
    assert stream.headers["x-generation-id"] in events(stream.text)[0]


async def test_unknown_routes_and_methods_have_our_shape(server: Server) -> None:
    for path in ("/nope", "/generate/", "/v1/models/other"):
        reply = await server.http.get(path)
        assert reply.status_code == 404
        assert reply.json()["error"]["message"]
    wrong = await server.http.get("/generate")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_a_fault_of_ours_is_a_500_without_its_traceback_and_logged_once(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.engine, "submit", lambda request: 1 / 0)
    reply = await server.http.post("/basic_generate", json={"prompt": "x"}, headers={"x-request-id": "mine"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (500, "engine_failed")
    assert "division" not in reply.text
    assert "mine" in reply.json()["error"]["message"]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "mine" in errors[0].getMessage()
    assert errors[0].exc_info is not None


async def test_a_fault_of_ours_in_a_stream_is_an_error_event(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everystep.api.native.TokenEvents.of", lambda self, delta: 1 / 0)
    server.runner.hold()
    server.runner.allow(1)
    reply = await server.post("/generate_stream", prompt="x", ignore_eos=True)
    assert reply.text.startswith("event: error\ndata: ")
    assert "division" not in reply.text
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert server.engine.observer.metrics.num_ended["per_token", "aborted"] == 1


async def test_the_documentation_describes_every_endpoint(server: Server) -> None:
    assert (await server.http.get("/docs")).status_code == 200
    schema = (await server.http.get("/openapi.json")).json()
    assert {"/generate", "/v1/chat/completions", "/steps"} <= set(schema["paths"])
    assert "ErrorReply" in str(schema["paths"]["/generate"]["post"]["responses"]["422"])


async def test_tokenize_and_detokenize_are_each_others_inverse(server: Server) -> None:
    text = "안녕 😀 <|im_start|>x"
    found = (await server.post("/tokenize", prompt=text)).json()
    assert found["count"] == len(found["tokens"])
    assert found["max_model_len"] == 512
    assert (await server.post("/detokenize", tokens=found["tokens"])).json() == {"prompt": text}


@pytest.mark.parametrize("tokens", [[384], [-1], [10**30], [1] * 513])
async def test_ids_outside_the_vocabulary_or_beyond_the_context_are_refused(server: Server, tokens: list[int]) -> None:
    reply = await server.post("/detokenize", tokens=tokens)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tokens")
