"""``everystep top`` as a command, against servers that are there, absent or somebody else's."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from browser.staged import Stage, staged
from cli.served import DEADLINE_S, environment, serving
from everystep.cli import run

KEY = "a-key-of-many-characters"
SIX = {"prompts": [f"p{n}" for n in range(6)], "max_tokens": 3, "ignore_eos": True, "policy": "static"}


@pytest.fixture(scope="module")
def server() -> Iterator[Stage]:
    with staged(static_batch_size=4) as ready:
        yield ready


@dataclass
class Done:
    """What became of a command."""

    status: int
    output: str
    errors: str

    def check_fails(self, status: int, words: str) -> None:
        assert (self.status, self.output) == (status, "")
        [line] = self.errors.splitlines()
        assert words in line


Top = Callable[..., Done]


@pytest.fixture
def top(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Top:
    """Runs the command in this process, 80 columns wide, its output in no terminal."""
    monkeypatch.setenv("COLUMNS", "80")

    def run_top(*args: str) -> Done:
        status = run(["top", *args])
        return Done(status, *capsys.readouterr())

    return run_top


def in_a_process(tmp_path: Path, *args: str, **variables: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "everystep", "top", *args],
        capture_output=True,
        text=True,
        env=environment(tmp_path) | {"COLUMNS": "80"} | variables,
        timeout=DEADLINE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def check_shows_two_rounds(output: str) -> None:
    seats = re.findall(r"^[0-3]  +(\S+)$", output, re.MULTILINE)
    assert [re.sub(r"[a-z]", "d", re.sub(r"[A-Z]", "P", strip)) for strip in seats] == [
        "PddPdd", "PddPdd", "Pdd···", "Pdd···",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_rounds_of_a_real_server_are_shown_by_a_real_command(tmp_path: Path) -> None:
    with serving(tmp_path, "--static-batch-size", "4") as real:
        assert real.client.post("/generate", json=SIX).status_code == 200
        done = in_a_process(tmp_path, "--url", real.url, "--once")
        assert (done.status, done.errors) == (0, "")
        check_shows_two_rounds(done.output)


def test_once_prints_the_rounds_of_a_server_and_ends(server: Stage, top: Top) -> None:
    assert server.client.post("/generate", json=SIX).status_code == 200
    for flags in (["--once"], []):  # a pipe is no terminal, so one look is all
        done = top("--url", server.url, "--lane", "static", *flags)
        assert (done.status, done.errors) == (0, "")
        assert done.output.startswith(f"everystep {server.url}  live\n")
        assert "\x1b" not in done.output
        assert "per_token" not in done.output
        check_shows_two_rounds(done.output)


def test_all_lanes_are_shown_without_a_choice(server: Stage, top: Top) -> None:
    done = top("--url", f"{server.url}/")
    assert re.findall(r"^(\w+)  0 running", done.output, re.MULTILINE) == ["static", "per_token", "continuous"]


def test_a_terminal_that_has_no_such_characters_gets_others(server: Stage, tmp_path: Path) -> None:
    done = in_a_process(tmp_path, "--url", server.url, PYTHONIOENCODING="ascii")
    assert (done.status, done.errors) == (0, "")
    assert done.output.isascii()
    assert done.output.endswith("A prefill  a decode  : held  . empty - a cell is a step, a letter a sequence\n")


def test_an_unknown_lane_is_wrong_usage_and_the_lanes_are_named(server: Stage, top: Top) -> None:
    done = top("--url", server.url, "--lane", "fast")
    done.check_fails(2, "--lane: 'fast' is none of static, per_token, continuous")


def test_a_server_that_isn_t_there_is_one_line_and_1(top: Top) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    top("--url", url).check_fails(1, f"no server at {url}: ")


class Other(BaseHTTPRequestHandler):
    """Another kind of server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"figures": "of another kind"}')

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def another_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{other.server_port}"
        other.shutdown()
        thread.join()


def test_a_server_of_another_kind_is_told_as_one(top: Top) -> None:
    with another_server() as url:
        top("--url", url).check_fails(1, f"{url} isn't an everystep server, or one of another version")


def test_a_server_that_accepts_and_says_nothing_is_told_as_one(top: Top, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everystep.top.server.DEADLINE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        top("--url", url).check_fails(1, f"{url} didn't answer within 0.2 s")


def test_the_key_is_sent_and_never_shown(top: Top, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(api_key=(KEY,)) as locked:
        top("--url", locked.url).check_fails(1, "an API key is needed")
        wrong = top("--url", locked.url, "--api-key", "a-wrong-key-of-many-characters")
        wrong.check_fails(1, "the API key isn't accepted")
        assert "a-wrong-key" not in wrong.errors
        done = top("--url", locked.url, "--api-key", KEY)
        assert (done.status, KEY in done.output) == (0, False)
        monkeypatch.setenv("EVERYSTEP_API_KEY", KEY)
        done = top("--url", locked.url)
        assert done.output.startswith(f"everystep {locked.url}  live\n")


def test_a_server_that_starts_is_shown_as_not_ready(server: Stage, top: Top) -> None:
    """A drain is as good as a start here: figures are answered, and no request would be."""
    with staged() as leaving:
        leaving.server.engine.stop_accepting()
        assert httpx.get(f"{leaving.url}/health/ready").status_code == 503
        assert "not ready: the server is shutting down" in top("--url", leaving.url).output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--url", "localhost:8000"], "isn't a server's URL"),
        (["--url", "ftp://localhost"], "isn't a server's URL"),
        (["--url", "http://"], "isn't a server's URL"),
        (["--url", "http://localhost:99999"], "isn't a server's URL"),
        (["--url", "http://localhost/?x=1"], "isn't a server's URL"),
        (["--url", "http://local host"], "isn't a server's URL"),
        (["--url", "http://[::1"], "isn't a server's URL"),
        (["--url", "http://xn--"], "isn't a server's URL"),
        (["--interval", "0"], "--interval"),
        (["--interval", "61"], "--interval"),
        (["--interval", "nan"], "--interval"),
        (["--api-key", ""], "--api-key"),
        (["--api-key", "one-key", "--api-key", "another-key"], "2 keys are given"),
        (["--watch"], "No such option"),
        (["static"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line_and_2(args: list[str], words: str, top: Top) -> None:
    top(*args).check_fails(2, words)
