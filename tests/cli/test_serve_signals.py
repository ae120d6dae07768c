"""What ends a server, whenever it comes: each way leaves promptly, with its status, and without an orphan."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from cli.kill_load import workers_of
from cli.served import DEADLINE_S, command, environment, serving

OPEN = {"prompts": ["a b c"], "max_tokens": 3}  # on a server that waits for company it stays open
WAITS = ["--static-max-wait", "600", "--drain-timeout", "600"]

# A server whose worker, or a part of whose start, takes as long as the test wants: until a file is there.
HELD_START = """
import os, time
from pathlib import Path
part, marker = os.environ["HELD_PART"], Path(os.environ["HELD_MARKER"])

def held(*args, **kwargs):
    marker.touch()
    while True:
        time.sleep(0.01)

if part == "open":
    import everystep.engine.client as place
    place.open_checkpoint = held
elif part == "build" and __name__ == "__mp_main__":
    import everystep.engine.bootstrap as place
    place.build_runner = held
if __name__ == "__main__":
    from everystep.cli import main
    main()
"""


@contextmanager
def held_in(part: str, tmp_path: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A server that is held in a part of its start, and has got there."""
    program, marker = tmp_path / "held.py", tmp_path / "held.marker"
    program.write_text(HELD_START)
    process = subprocess.Popen(
        [sys.executable, str(program), *command("--port", "0", *flags)[3:]],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path) | {"HELD_PART": part, "HELD_MARKER": str(marker)},
    )
    try:
        while not marker.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def ended(process: subprocess.Popen[str], children: list[psutil.Process]) -> tuple[int, str]:
    assert process.stderr is not None
    said = process.stderr.read()
    _, alive = psutil.wait_procs(children, DEADLINE_S)
    assert alive == [], "no orphan remains"
    return process.wait(DEADLINE_S), said


@pytest.mark.parametrize("part", ["open", "build"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_is_opened_or_built_ends_with_0_though_the_work_would_go_on_for_ever(
    part: str, number: signal.Signals, tmp_path: Path
) -> None:
    with held_in(part, tmp_path) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        status, said = ended(process, children)
    assert (status, "Traceback" in said) == (0, False)


def test_a_worker_whose_parent_is_killed_while_it_is_built_ends_by_itself(tmp_path: Path) -> None:
    with held_in("build", tmp_path) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        status, _ = ended(process, children)
    assert status == -signal.SIGKILL


def test_a_closed_terminal_drains_as_sigterm_does_and_under_nohup_it_is_none_of_ours(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        with serving(tmp_path) as server:
            server.process.send_signal(signal.SIGHUP)
            status, said = server.end()
        assert status == 0
        assert "SIGHUP: no new requests from now on, open ones get 30 s; once more: leave at once" in said
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with serving(tmp_path) as server:
            server.process.send_signal(signal.SIGHUP)
            assert server.client.post("/generate", json=OPEN).status_code == 200
            server.process.terminate()
            assert server.end()[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def in_a_terminal(tmp_path: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with a process group of its own, as a shell gives each command; and its URL."""
    process = subprocess.Popen(
        command("--port", "0", *flags), stderr=subprocess.PIPE, text=True, env=environment(tmp_path), process_group=0
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"at (http://\S+):", line):
                yield process, found[1]
                return
        raise AssertionError("the server never got ready")
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def test_ctrl_c_goes_to_the_whole_group_and_drains_and_once_more_leaves_at_once(tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, *WAITS) as (process, url), ThreadPoolExecutor() as pool:
        children = psutil.Process(process.pid).children(recursive=True)
        stream = pool.submit(stream_to_its_end, f"{url}/generate_stream")
        while 'everystep_requests_accepted_total{policy="static"} 1.0' not in httpx.get(f"{url}/metrics").text:
            pass
        os.killpg(process.pid, signal.SIGINT)
        while httpx.get(f"{url}/health/ready").status_code == 200:
            pass
        refused = httpx.post(f"{url}/generate", json=OPEN)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert refused.headers["connection"] == "close"
        assert all(child.is_running() for child in children), "the worker goes on while the server drains"
        os.killpg(process.pid, signal.SIGINT)
        status, said = ended(process, children)
        assert isinstance(stream.exception(), httpx.TransportError)
    assert status == 1
    assert "SIGINT: no new requests from now on, open ones get 600 s; once more: leave at once" in said
    assert said.endswith("everystep: SIGINT again: leaving at once\n")
    assert "Traceback" not in said


def stream_to_its_end(url: str) -> list[str]:
    body = {"prompt": "a b c", "max_tokens": 3, "policy": "static"}
    with httpx.stream("POST", url, json=body, timeout=DEADLINE_S) as reply:
        return [line for line in reply.iter_lines() if line]


def test_a_stream_that_outlives_the_drain_gets_an_error_event_and_the_exit_is_0(tmp_path: Path) -> None:
    flags = ["--static-max-wait", "600", "--drain-timeout", "0.5"]
    with serving(tmp_path, *flags) as server, ThreadPoolExecutor() as pool:
        stream = pool.submit(stream_to_its_end, f"{server.url}/generate_stream")
        server.wait_until(lambda: server.num_waiting() == 1)
        server.process.terminate()
        lines = stream.result()
        status, _ = server.end()
    assert status == 0
    assert lines[0] == "event: error"
    assert json.loads(lines[1].removeprefix("data: "))["error"]["type"] == "engine_unavailable"
    assert len(lines) == 2


def test_a_signal_within_the_back_off_of_a_crash_loop_ends_with_0(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for _ in range(4):  # then it waits 0.8 s
            (worker,) = until_there(server.process.pid)
            worker.kill()
            server.wait_until(lambda: server.client.get("/health/ready").status_code == 503)
        server.process.terminate()
        status, said = server.end()
    assert (status, "Traceback" in said) == (0, False)


def until_there(server_pid: int) -> list[psutil.Process]:
    while not (found := workers_of(server_pid)):
        pass
    return found


@pytest.mark.slow
def test_a_crash_loop_ends_the_server_with_1_and_one_clear_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        seen: set[int] = set()
        with contextlib.suppress(httpx.TransportError, psutil.NoSuchProcess):
            while True:
                server.client.get("/health")
                for worker in workers_of(server.process.pid):
                    if worker.pid not in seen:
                        seen.add(worker.pid)
                        worker.kill()
        status, said = server.end()
    assert status == 1
    assert said.splitlines()[-1] == (
        "everystep: the worker can't run: it ended 6 times in a row without having served; "
        "the last time: its process was ended by SIGKILL, as the kernel does where memory has run out"
    )
    assert len(re.findall(r"in a row\): ", said)) == 6


def test_hundreds_of_idle_connections_dont_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-connections", "2000") as server, contextlib.ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        for _ in range(700):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        server.process.terminate()
        status, said = server.end()
    assert (status, "Traceback" in said) == (0, False)


def test_the_second_signal_leaves_at_once_even_where_standard_error_is_closed(tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, *WAITS) as (process, url), ThreadPoolExecutor() as pool:
        children = psutil.Process(process.pid).children(recursive=True)
        asking = pool.submit(httpx.post, f"{url}/generate", json=OPEN, timeout=DEADLINE_S)
        while 'everystep_requests_accepted_total{policy="static"} 1.0' not in httpx.get(f"{url}/metrics").text:
            pass
        assert process.stderr is not None
        process.stderr.close()  # as a terminal that was closed: whoever writes there gets an error
        process.send_signal(signal.SIGHUP)
        while httpx.get(f"{url}/health/ready").status_code == 200:
            pass
        process.send_signal(signal.SIGHUP)
        assert process.wait(DEADLINE_S) == 1
        _, alive = psutil.wait_procs(children, DEADLINE_S)
        assert alive == []
        assert isinstance(asking.exception(), httpx.TransportError)
