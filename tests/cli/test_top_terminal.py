"""``everystep top`` in a terminal: a real pseudo terminal, a real server that dies and comes back, and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from browser.staged import Stage, staged
from cli.kill_load import workers_of
from cli.served import DEADLINE_S, environment, serving

HOME = b"\x1b[H"
COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
HIDDEN_CURSOR, CURSOR = b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """What a person sees and types: a pseudo terminal with the command in it, as a shell would start it."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.fd = fd
        self.received = b""

    @property
    def frame(self) -> str:
        """The last picture that is whole."""
        whole = self.received.split(HOME)[1:-1]
        return COMMANDS.sub("", whole[-1].decode()).replace("\r", "") if whole else ""

    def wait_until(self, is_so: Callable[[str], bool]) -> str:
        """Read until a frame is as it should be; that frame."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(self.frame):
            assert time.monotonic() < deadline, f"it never came to be so; the last frame:\n{self.frame}"
            assert self._read(deadline), f"it ended; all that it wrote:\n{self.received!r}"
        return self.frame

    def end(self) -> int:
        """Exit status, once all is read."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read(deadline):
            pass
        return self.process.wait(DEADLINE_S)

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self, deadline: float) -> bool:
        if not select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux: nobody is left on the other side
            return False
        self.received += data
        return bool(data)


def as_a_shell_would() -> None:
    """Ctrl-C is a signal, and one that is heeded: whoever runs in the background, as tests may, ignores it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def in_a_terminal(tmp_path: Path, *args: str, columns: int = 80, **variables: str) -> Iterator[Terminal]:
    own, its = pty.openpty()
    env = environment(tmp_path) | {"TERM": "xterm-256color", "COLORTERM": ""} | variables
    for name in ("COLUMNS", "LINES", *({"NO_COLOR"} - variables.keys())):
        env.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "everystep", "top", "--interval", "0.1", *args],
        stdin=its, stdout=its, stderr=its, env=env, start_new_session=True,
        preexec_fn=as_a_shell_would,
    )  # fmt: skip
    os.close(its)
    terminal = Terminal(process, own)
    terminal.resize(columns, 24)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(own)


def check_is_left_as_it_was(terminal: Terminal) -> None:
    for begin, end in ((ALTERNATE, BACK), (HIDDEN_CURSOR, CURSOR)):
        assert terminal.received.count(begin) == terminal.received.count(end) == 1
    assert b"Traceback" not in terminal.received


@pytest.mark.slow
def test_it_goes_on_through_the_end_of_the_worker_and_of_the_server_until_ctrl_c(tmp_path: Path) -> None:
    body = {"prompts": ["a", "b", "c", "d", "e", "f"], "max_tokens": 3, "ignore_eos": True, "policy": "static"}
    with serving(tmp_path) as server:
        url, port = server.url, server.url.rpartition(":")[2]
        with in_a_terminal(tmp_path, "--url", url) as terminal:
            terminal.wait_until(lambda frame: "live" in frame and "continuous  0 running" in frame)
            assert server.client.post("/generate", json=body).status_code == 200
            terminal.wait_until(lambda frame: len(re.findall(r"█▄▄█▄▄", frame)) >= 1)
            (worker,) = workers_of(server.process.pid)
            worker.kill()
            terminal.wait_until(lambda frame: "live" in frame and "the worker was replaced once" in frame)
            server.process.terminate()
            terminal.wait_until(lambda frame: "away, trying again: no server at" in frame)
            assert re.search(r"█▄▄█▄▄", terminal.frame), "what was seen stays"
            assert server.end()[0] == 0
            with serving(tmp_path, "--port", port):
                frame = terminal.wait_until(lambda frame: "live" in frame and "the server began anew" in frame)
                assert "replaced" not in frame
                terminal.type(b"\x03")
                assert terminal.end() == 0
    check_is_left_as_it_was(terminal)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as ready:
        yield ready


def test_it_follows_the_server_and_the_size_of_the_terminal_until_ctrl_c(stage: Stage, tmp_path: Path) -> None:
    body = {"prompts": ["a", "b"], "max_tokens": 3, "ignore_eos": True, "policy": "static"}
    with in_a_terminal(tmp_path, "--url", stage.url, columns=60) as terminal:
        terminal.wait_until(lambda frame: "live" in frame)
        assert max(map(len, terminal.frame.splitlines())) <= 60
        assert stage.client.post("/generate", json=body).status_code == 200
        terminal.wait_until(lambda frame: frame.count("█▄▄") == 2)
        terminal.resize(200, 30)
        wide = terminal.wait_until(lambda frame: re.search(r"static .* per_token .* continuous ", frame) is not None)
        assert len(wide.rstrip("\n").splitlines()) <= 30
        terminal.type(b"\x03")
        assert terminal.end() == 0
    check_is_left_as_it_was(terminal)
    assert re.search(rb"\x1b\[[0-9;]*3[0-8]", terminal.received) is not None, "in colours"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(stage: Stage, tmp_path: Path, number: signal.Signals) -> None:
    with in_a_terminal(tmp_path, "--url", stage.url) as terminal:
        terminal.wait_until(lambda frame: "live" in frame)
        terminal.process.send_signal(number)
        assert terminal.end() == 0
    check_is_left_as_it_was(terminal)


@pytest.mark.slow
def test_colours_are_left_out_for_whoever_wants_none(stage: Stage, tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, "--url", stage.url, NO_COLOR="1") as terminal:
        frame = terminal.wait_until(lambda frame: "live" in frame)
    assert re.search(rb"\x1b\[[0-9;]*3[0-8]", terminal.received) is None
    assert "A prefill" in frame


@pytest.mark.slow
def test_a_terminal_that_can_t_move_its_cursor_gets_one_look(stage: Stage, tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, "--url", stage.url, TERM="dumb") as terminal:
        assert terminal.end() == 0
    assert b"\x1b" not in terminal.received
    assert b"live" in terminal.received
