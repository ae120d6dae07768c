"""What becomes of connections at the server's end: those at work are drained, the others hold nothing up."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.served import serving
from cli.wire import Wire, request

BODY = {"prompts": ["a b c"], "max_tokens": 3}


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
        assert half.is_ended()
        assert all(wire.is_ended() for wire in idle[4:])
        status, said = server.end()
    assert status == 0
    assert "Traceback" not in said
    assert "Cancel" not in said
