"""The server as a process: what it says at its start, what signals mean, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from cli.served import DEADLINE_S, refuse, serving
from everystep.messages import EngineInfo
from everystep.serve import page_words, start_line

WAITS_FOR_COMPANY = ["--static-max-wait", "600"]  # so a lone request on /generate stays open
BODY = {"prompts": ["a b c"], "max_tokens": 3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_free_port_is_named_and_a_signal_ends_an_idle_server_with_0(number: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.client.get("/health/ready").status_code == 200
        reply = server.client.post("/generate", json=BODY)
        assert reply.status_code == 200
        assert len(reply.json()["generated_texts"]) == 1
        server.process.send_signal(number)
        status, said = server.end()
    assert status == 0
    assert f"at {server.url}: fake" in said
    (line,) = [line for line in said.splitlines() if f"at {server.url}:" in line]
    assert line.endswith(f"; live page: {server.url}/"), "where to look stands in the line that says what serves"
    assert "Traceback" not in said


def test_the_start_says_what_each_part_took(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.process.terminate()
        _, said = server.end()
    assert re.search(r"ready [\d.]+ s after the process began; the worker's part: start process [\d.]+ s, open", said)


def test_a_request_that_outlives_the_drain_gets_a_typed_error_and_the_exit_is_0(tmp_path: Path) -> None:
    with serving(tmp_path, *WAITS_FOR_COMPANY, "--drain-timeout", "1") as server, ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, f"{server.url}/generate", json=BODY, timeout=DEADLINE_S)
        server.wait_until(lambda: server.num_waiting() == 1)
        server.process.terminate()
        server.wait_until(lambda: server.client.get("/health/ready").status_code == 503)
        refused = server.client.post("/generate", json=BODY)
        assert refused.status_code == 503
        assert refused.json()["error"]["message"] == "the server is shutting down"
        assert reply.result().status_code == 503
        assert "shutting down" in reply.result().json()["error"]["message"]
        status, _ = server.end()
    assert status == 0


def test_a_request_that_ends_within_the_drain_is_answered_whole(tmp_path: Path) -> None:
    flags = ["--static-max-wait", "1", "--drain-timeout", "30"]
    with serving(tmp_path, *flags) as server, ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, f"{server.url}/generate", json=BODY, timeout=DEADLINE_S)
        server.wait_until(lambda: server.num_waiting() == 1)
        server.process.terminate()
        assert reply.result().status_code == 200
        status, _ = server.end()
    assert status == 0


def test_a_live_stream_of_steps_doesnt_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "600") as server, httpx.Client(timeout=DEADLINE_S) as watcher:
        with watcher.stream("GET", f"{server.url}/steps/stream") as stream:
            lines = stream.iter_lines()
            server.client.post("/generate", json=BODY)
            assert any(line.startswith("data: ") for line in lines)
            server.process.terminate()
            with contextlib.suppress(httpx.RemoteProtocolError):  # an endless stream may be cut
                for _ in lines:
                    pass
        status, said = server.end()
    assert status == 0
    assert "Traceback" not in said


def test_a_second_signal_exits_at_once_and_leaves_no_orphan(tmp_path: Path) -> None:
    with serving(tmp_path, *WAITS_FOR_COMPANY, "--drain-timeout", "600") as server, ThreadPoolExecutor() as pool:
        reply = pool.submit(httpx.post, f"{server.url}/generate", json=BODY, timeout=DEADLINE_S)
        server.wait_until(lambda: server.num_waiting() == 1)
        server.process.terminate()
        server.wait_until(lambda: server.client.get("/health/ready").status_code == 503)
        server.process.terminate()
        status, said = server.end()
        assert isinstance(reply.exception(), httpx.TransportError)
    assert status == 1
    assert "SIGTERM again: leaving at once" in said


def test_a_taken_port_is_said_in_one_line_before_any_model_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refuse(tmp_path, "--port", str(port))
    assert (status, said) == (1, [f"everystep: can't listen on 127.0.0.1 port {port}: Address already in use"])


def test_a_worker_that_cant_start_ends_the_server_with_1_and_its_reason_in_one_line(tmp_path: Path) -> None:
    status, said = refuse(tmp_path, "--port", "0", "--kv-cache-gib", "1e-9")
    assert (status, len(said)) == (1, 1)
    assert said[0].startswith("everystep: ")
    assert "at least 2 are needed" in said[0]


def test_the_start_line_tells_what_serves() -> None:
    info = EngineInfo(
        model="m", runner="openvino", precision="int8", num_threads=2, block_size=32, num_blocks=1024,
        kv_block_bytes=2**20, max_model_len=8192, seats={"static": 4, "continuous": 64}, start_up_s={},
    )  # fmt: skip
    assert start_line(info, "http://127.0.0.1:8000") == (
        "m at http://127.0.0.1:8000: openvino int8, 2 threads, seats: static 4, continuous 64; "
        "1024 blocks of 32 tokens (1.00 GiB at most), context 8192"
    )


def test_a_server_elsewhere_is_told_without_what_it_keeps_to_itself() -> None:
    info = EngineInfo(
        model="m", runner="vllm", precision="auto", num_threads=0, block_size=0, num_blocks=0,
        kv_block_bytes=0, max_model_len=8192, seats={}, start_up_s={},
    )  # fmt: skip
    assert start_line(info, "http://127.0.0.1:8000") == "m at http://127.0.0.1:8000: vllm auto, context 8192"


def test_the_words_about_the_page_say_that_a_key_is_wanted_and_never_which() -> None:
    assert page_words("http://[::1]:8000", wants_key=False) == "live page: http://[::1]:8000/"
    assert page_words("http://127.0.0.1:8000", wants_key=True) == (
        "live page: http://127.0.0.1:8000/ (asks for the API key)"
    )


def test_the_last_line_of_a_log_in_json_is_json(tmp_path: Path) -> None:
    status, lines = refuse(tmp_path, "--port", "0", "--kv-cache-gib", "1e-9", "--log-json")
    assert status == 1
    last = json.loads(lines[-1])
    assert last["level"] == "error"
    assert "kv_cache_gib" in last["message"]
