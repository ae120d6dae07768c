"""A real server at its most talkative, given keys in every place where somebody might put one: it repeats none."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from cli.served import DEADLINE_S, command, environment
from cli.wire import Wire, request

KEY = "marker-accepted-0123456789"  # of the variable
FILE_KEY = "marker-in-file-0123456789"
WRONG = "marker-refused-0123456789"
VLLM_KEY = "marker-onward-0123456789"
PROMPT = "marker prompt that nobody logs"
BASIC = base64.b64encode(f"user:{WRONG}".encode()).decode()
BODIES: list[object] = [  # the sender may read his own words again; nobody else may
    {"prompt": PROMPT, "max_tokens": KEY},
    {"prompt": PROMPT, "api_key": KEY},
    {"prompt": PROMPT, KEY: 1},
    {"prompt": PROMPT, "policy": KEY},
    {"prompt": {"key": KEY}},
    KEY,
]
ONE = {"prompt": PROMPT, "max_tokens": 3}


class Talkative:
    """``everystep serve`` at debug; what it says is read as it comes, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._is_ready.wait(DEADLINE_S), self.said
        assert self.url, self.said

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"at (http://\S+): fake", line):
                self.url = found[1]
                self._is_ready.set()
        self._is_ready.set()

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def end(self) -> int:
        self.process.terminate()
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextmanager
def talking(tmp_path: Path, *flags: str) -> Iterator[Talkative]:
    keys = tmp_path / "keys"
    keys.write_text(FILE_KEY)
    secrets = {"EVERYSTEP_API_KEY": KEY, "EVERYSTEP_VLLM_API_KEY": VLLM_KEY, "EVERYSTEP_VLLM_URL": "http://127.0.0.1:9"}
    process = subprocess.Popen(
        command("--port", "0", "--log-level", "debug", "--api-key-file", str(keys), *flags),
        stderr=subprocess.PIPE, text=True, env=environment(tmp_path) | secrets,
    )  # fmt: skip
    try:
        yield Talkative(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)


def requests_with_keys() -> Iterator[tuple[str, str, bytes | None, dict[str, str]]]:
    """Method, target, body and headers; the routes answer 200, 400, 401, 404, 405, 413, 422 and 503."""
    places: list[dict[str, str]] = [
        {"authorization": f"Bearer {KEY}"},
        {"x-api-key": FILE_KEY},
        {"authorization": f"Bearer {WRONG}"},
        {"authorization": f"Basic {BASIC}"},
        {"authorization": WRONG},
        {"x-api-key": WRONG},
        {"x-api-key": f"{KEY}\x01{WRONG}"},
        {"cookie": f"key={WRONG}", "x-api-key": KEY},
    ]
    body = json.dumps(ONE).encode()
    for headers in places:
        for method, path in (("GET", "/version"), ("GET", "/nope"), ("DELETE", "/steps"), ("GET", "/requests/nobody")):
            yield method, path, None, headers
        for path, content in (
            ("/generate_stream", body),
            ("/basic_generate", body),
            ("/generate_vllm", b'{"prompts": ["a"]}'),
            ("/v1/completions", b'{"model": "no such model", "prompt": "a"}'),
            ("/generate", b"{"),
            ("/generate", b"\xff\xfe"),
            ("/generate", b'{"prompts": 5}'),
        ):
            yield "POST", path, content, headers
    for query in (f"api_key={WRONG}", f"access_token={KEY}", f"a=b&key={FILE_KEY}#x"):
        yield "GET", f"/version?{query}", None, {}
        yield "GET", f"/nope?{query}", None, {"x-api-key": KEY}
        yield "GET", f"/steps?limit=0&{query}", None, {"x-api-key": KEY}
    yield "GET", f"http://user:{WRONG}@127.0.0.1/version", None, {}
    yield "GET", f"http://user:{WRONG}@127.0.0.1/version?key={WRONG}", None, {"x-api-key": KEY}


def broken_requests() -> Iterator[bytes]:
    """What no application hears of, keys inside."""
    head = b"GET /version HTTP/1.1\r\nhost: localhost\r\nx-api-key: "
    yield head + KEY.encode() + b"\r\nno colon here\r\n\r\n"
    yield head + KEY.encode() + b"\r\ncontent-length: many\r\n\r\n"
    yield head + KEY.encode() * 20_000 + b"\r\n\r\n"
    yield f"{WRONG} nonsense\r\n\r\n".encode()
    yield f"GET /version?key={WRONG} HTTP/9.9\r\nhost: localhost\r\n\r\n".encode()
    yield head + WRONG.encode()  # and no more of it


def ask(wire: Wire, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
    wire.send(request(method, path, body, {"connection": "close", **headers}))
    return wire.read_to_end()


@pytest.mark.parametrize("flags", [[], pytest.param(["--log-json"], marks=pytest.mark.slow)], ids=["lines", "json"])
def test_no_key_comes_back_in_logs_errors_metrics_recordings_or_other_processes(
    flags: list[str], tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    shown: dict[str, str] = {}
    statuses: set[int] = set()
    with talking(tmp_path, "--record", str(record), *flags) as server:
        for number, (method, path, body, headers) in enumerate(requests_with_keys()):
            with Wire(server.url) as wire:
                answer = ask(wire, method, path, body, headers)
            statuses.add(int(answer.split(b" ")[1]))
            shown[f"{number}: {method} {path[:20]}"] = answer.decode("latin-1")
        with Wire(server.url) as wire:
            statuses.add(wire.ask("POST", "/generate", b"x", content_length=str(2**40), x_api_key=KEY).status)
        for number, data in enumerate(broken_requests()):
            with Wire(server.url) as wire:
                wire.send(data)
                wire.half_close()
                with contextlib.suppress(ConnectionError):
                    shown[f"broken {number}"] = wire.read_to_end().decode("latin-1")
        with httpx.Client(base_url=server.url, headers={"x-api-key": KEY}, timeout=DEADLINE_S) as client:
            for path in ("/basic_generate", "/v1/completions", "/v1/chat/completions"):
                for body in BODIES:
                    assert 400 <= client.post(path, json=body).status_code < 500
            for path in (
                "/metrics",
                "/steps?limit=1000",
                "/steps/trace",
                "/engine",
                "/openapi.json",
                "/docs",
                "/health",
            ):
                shown[path] = client.get(path).text
            for request_id in set(re.findall(r'"request_id": ?"([^"]+)"', shown["/steps?limit=1000"])):
                shown[f"/requests/{request_id}"] = client.get(f"/requests/{request_id}").text
        for child in psutil.Process(server.process.pid).children(recursive=True):
            shown[f"environment of {child.pid}"] = repr(child.environ())
            shown[f"arguments of {child.pid}"] = repr(child.cmdline())
        assert len(psutil.Process(server.process.pid).children(recursive=True)) >= 1
        assert server.end() == 0
    shown["log"] = server.said
    shown["record"] = record.read_text()
    assert statuses >= {200, 400, 401, 404, 405, 413, 422, 503}
    assert "GET /nope?... HTTP/1.1" in shown["log"], "the list of accesses is there, without queries"
    assert len([name for name in shown if name.startswith("/requests/")]) >= 4
    leaks = {
        (name, word) for name, text in shown.items() for word in (KEY, FILE_KEY, WRONG, VLLM_KEY, BASIC) if word in text
    }
    assert leaks == set()
    for name, text in shown.items():
        assert PROMPT not in text, name
