"""What becomes of connections at the server's end: those at work are drained, the others hold nothing up."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.served import serving
from cli.wire import Wire, request

BODY = {"prompts": ["a b c"], "max_tokens": 3}
WHOLE = request("POST", "/generate", BODY)
CHUNKED = request("POST", "/generate", headers={"transfer-encoding": "chunked", "content-type": "application/json"})
LONG = {"prompt": "x", "n": 64, "max_tokens": 400, "ignore_eos": True}  # megabytes of events
GENERATED = 'everystep_requests_total{outcome="length",policy="continuous"} 128.0'  # both
NARROW = 4096  # a client's read buffer, so that little is enough to fill it
NOTABLE = re.compile(r"Traceback|WARNING|ERROR|Cancel")


@pytest.mark.slow  # the drain must be long enough for a slow machine to ask within it
def test_at_the_end_work_is_drained_answers_end_their_connection_and_idle_ones_close(tmp_path: Path) -> None:
    flags = ["--static-max-wait", "600", "--drain-timeout", "8", "--client-timeout", "600"]
    with serving(tmp_path, *flags) as server:
        idle = [Wire(server.url) for _ in range(20)]
        (working, kept, half, unsaid) = idle[:4]
        assert kept.ask("GET", "/health/ready", host="localhost").status == 200
        half.send(b"GET /health HT")
        working.send(request("POST", "/generate", BODY, {"host": "localhost"}))
        server.wait_until(lambda: server.num_waiting() == 1)
        server.process.terminate()
        server.wait_until(lambda: server.client.get("/health/ready").status_code == 503)

        refused = kept.ask("POST", "/generate", BODY, host="localhost")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        assert kept.read_to_end() == b""
        late = unsaid.ask("GET", "/health/live", host="localhost")
        assert late.headers["connection"] == "close"

        drained = working.read_reply()
        assert (drained.status, drained.error["type"]) == (503, "engine_unavailable")
        assert drained.headers["connection"] == "close"
        assert working.read_to_end() == b""
        assert (half.read_reply().status, half.is_ended()) == (503, True)
        assert all(wire.is_ended() for wire in idle[4:])
        status, said = server.end()
    assert status == 0
    assert "Traceback" not in said
    assert "Cancel" not in said


def test_at_the_end_requests_sent_in_part_get_503_and_a_viewer_of_the_steps_gets_its_last_chunk(tmp_path: Path) -> None:
    with serving(tmp_path) as server, ExitStack() as stack:
        viewer, *parts = [stack.enter_context(Wire(server.url)) for _ in range(6)]
        viewer.send(request("GET", "/steps/stream"))
        assert b"200 OK" in viewer.read_until(b"\r\n\r\n")
        for wire, part in zip(parts, [b"G", WHOLE[:25], WHOLE[:-9], CHUNKED, CHUNKED + b'5\r\n{"pro'], strict=True):
            wire.send(part)
        server.process.terminate()
        for wire in parts:
            reply = wire.read_reply()
            assert (reply.status, reply.headers["connection"]) == (503, "close")
            assert reply.error["type"] == "engine_unavailable"
            assert wire.read_to_end() == b""
            wire.leave()
        assert viewer.read_to_end().endswith(b"0\r\n\r\n")
        status, said = server.end()
    assert (status, NOTABLE.findall(said)) == (0, [])


def test_at_the_end_clients_that_read_nothing_or_never_leave_are_cut_without_a_line_of_log(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "0.5", "--kv-cache-gib", "0.05") as server, ExitStack() as stack:
        stays, stream, whole, buffered = [stack.enter_context(Wire(server.url, read_buffer=NARROW)) for _ in range(4)]
        model = server.client.get("/v1/models").json()["data"][0]["id"]
        whole.send(request("GET", "/openapi.json") * 200)
        stream.send(request("POST", "/v1/completions", {**LONG, "model": model, "stream": True}))
        buffered.send(request("POST", "/v1/completions", {**LONG, "model": model}))
        stays.send(b"G")
        server.wait_until(lambda: GENERATED in server.client.get("/metrics").text)
        server.process.terminate()
        status, said = server.end()
    assert (status, NOTABLE.findall(said)) == (0, [])
