"""Where the server listens: beyond this machine only with a key, or because somebody said so."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.served import TINY, refuse, serving
from cli.wire import Wire, request
from everystep.cli import run
from everystep.config import Settings
from everystep.errors import ConfigError, EverystepError
from everystep.exposure import check_exposure
from everystep.serve import listen

LONG = "k" * 16
OPEN = ("/health", "/health/live", "/%68ealth", "http://any.example/health")
DISGUISED = (
    "/health/", "//health", "/health//live", "/HEALTH", "/health/../steps", "/health%2f..%2fsteps",
    "/health/..%2fsteps", "/./health", "/health/.", "/health;/steps", "/health%00", "/health%20", "/health%3f",
    "/health\\..\\steps", "/steps/", "/steps%2f", "//steps", "/STEPS", "/steps?/health", "/steps#/health",
    "/health@steps", "*", "health",
    "?", "/", "http://any.example/steps", "http://any.example", "http:///steps", "/%73teps", "/v1/../health",
    f"/steps?api_key={LONG}", f"/steps?x-api-key={LONG}", f"http://{LONG}@any.example/steps",
)  # fmt: skip


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(
        logging.getLogger("everystep.exposure"), "warning", lambda words, *values: lines.append(words % values)
    )
    return lines


@contextlib.contextmanager
def listening(host: str) -> Iterator[socket.socket]:
    try:
        with listen(host, 0) as sock:
            yield sock
    except EverystepError as error:
        if isinstance(error, ConfigError):
            raise
        pytest.skip(f"this machine has no such address: {error.message}")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machines_own_addresses_need_no_key(host: str, said: list[str]) -> None:
    with listening(host) as sock:
        check_exposure(Settings(host=host), sock)
    assert said == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0", "::ffff:0.0.0.0"])
def test_whatever_means_every_address_is_refused_without_a_key(host: str, said: list[str]) -> None:
    with listening(host) as sock, pytest.raises(ConfigError) as caught:
        check_exposure(Settings(host=host), sock)
    for way_out in ("--api-key-file", "127.0.0.1", "--insecure-no-auth"):
        assert way_out in caught.value.message
    assert caught.value.message.startswith(f"--host {host or repr('')} listens on ")
    assert "\n" not in caught.value.message


def test_a_name_is_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    bind = socket.socket.bind
    for name, address in (("inside", "127.0.0.1"), ("outside", "0.0.0.0")):

        class Resolving(socket.socket):
            def bind(self, to: tuple[str, int], address: str = address) -> None:
                bind(self, (address, to[1]))

        monkeypatch.setattr(socket, "socket", Resolving)
        with listen(name, 0) as sock:
            if name == "inside":
                check_exposure(Settings(host=name), sock)
            else:
                with pytest.raises(ConfigError, match=r"--host outside listens on 0\.0\.0\.0, beyond this machine"):
                    check_exposure(Settings(host=name), sock)
        monkeypatch.undo()


def test_a_key_opens_and_the_word_opens_with_a_warning(said: list[str]) -> None:
    with listening("0.0.0.0") as sock:
        check_exposure(Settings(host="0.0.0.0", api_key=(LONG,)), sock)
        assert said == []
        check_exposure(Settings(host="0.0.0.0", insecure_no_auth=True), sock)
    [line] = said
    assert line.startswith("OPEN TO THE NETWORK: whoever reaches 0.0.0.0 is let in")


def test_the_word_changes_nothing_where_nobody_else_listens(said: list[str]) -> None:
    with listening("127.0.0.1") as sock:
        check_exposure(Settings(insecure_no_auth=True), sock)
    assert said == []


def test_a_key_that_can_be_guessed_is_warned_of_in_numbers(said: list[str]) -> None:
    with listening("127.0.0.1") as sock:
        check_exposure(Settings(api_key=("short", LONG, LONG[1:])), sock)
    assert said == ["2 of 3 API keys have under 16 characters: easily guessed"]


def test_the_command_refuses_with_2_in_one_line_before_any_model_is_opened(tmp_path: Path) -> None:
    status, lines = refuse(tmp_path, "--host", "0.0.0.0", "--port", "0", "--model", "/nowhere")
    assert (status, len(lines)) == (2, 1)
    assert lines[0].startswith("everystep: --host 0.0.0.0 listens on 0.0.0.0, beyond this machine")


@pytest.mark.parametrize(
    "flags",
    [
        ["--insecure-no-auth", "--api-key", LONG],
        ["--api-key-file", "/nowhere/keys"],
        ["--api-key-file", "/"],
        ["--host", "0.0.0.0", "--api-key-file", "/dev/null"],
    ],
)
def test_what_contradicts_itself_or_cant_be_read_is_wrong_usage(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--model", str(TINY), "--runner", "fake", "--port", "0", *flags]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_with_a_key_of_a_file_the_server_listens_everywhere_and_lets_in_who_has_it(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"# team\n{LONG}\nother-{LONG}\n")
    keys.chmod(0o600)
    with serving(tmp_path, "--host", "0.0.0.0", "--api-key-file", str(keys)) as server:
        assert server.client.get("/health/ready").status_code == 200
        assert server.client.get("/version").status_code == 401
        for target in DISGUISED:
            with Wire(server.url) as wire:
                wire.send(request("GET", target, headers={"connection": "close"}))
                assert wire.read_to_end().split(b" ")[1] in (b"400", b"401"), target
        for target in OPEN:
            with Wire(server.url) as wire:
                assert wire.ask("GET", target).json() == {"status": "ok", "reason": None}, target
        for key in (LONG, f"other-{LONG}"):
            assert server.client.get("/version", headers={"x-api-key": key, "host": "any.example"}).status_code == 200
        server.process.terminate()
        status, words = server.end()
    assert status == 0
    assert "WARNING" not in words
