"""The real vLLM on a CPU, beside our own lanes and as a server of its own.  Few starts: each takes a minute."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from engine.vllm_stand_in import are_gone
from everystep.checkpoint import default_cache_dir, hf_folder, open_checkpoint
from everystep.engine.vllm.group import end_group

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[2]
START_S, ANSWER_S, LOOK_S = 600.0, 120.0, 0.2
# Next tokens are far likelier than their runners-up, so that two implementations of float32 agree.
CERTAIN = ["1, 2, 3, 4, 5,", "Monday, Tuesday, Wednesday,", "The capital of France is", "A, B, C, D, E,"]
LONG = {"max_tokens": 900, "ignore_eos": True}
DEADLINE_S = 25.0
LOADED = "from everystep.engine.vllm.main import main"  # in the command line of vLLM's host


@pytest.fixture(scope="module")
def vllm_python() -> str:
    path = os.environ.get("EVERYSTEP_TEST_VLLM_PYTHON")
    assert path, "EVERYSTEP_TEST_VLLM_PYTHON must name a Python that has vLLM"
    return path


class Running:
    """A process that serves HTTP."""

    def __init__(self, command: list[str], url: str, log: Path, environ: dict[str, str]) -> None:
        self.url = url
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=environ, start_new_session=True)
        self.http = httpx.Client(base_url=url, timeout=ANSWER_S)

    def wait_until(self, is_so: Callable[[], bool], limit_s: float = START_S) -> None:
        end_s = time.monotonic() + limit_s
        while not is_so():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end_s, self.log.read_text()[-3000:]
            time.sleep(LOOK_S)

    def is_up(self, path: str) -> bool:
        with suppress(httpx.TransportError):
            return self.http.get(path).status_code == 200
        return False

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def has_vllm(self) -> bool:
        return self.post("/generate_vllm", prompts=[]).status_code == 200

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.http.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else -1.0

    def vllm_processes(self) -> list[psutil.Process]:
        """vLLM's engine and its worker name themselves so."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if child.name().startswith("VLLM::")]

    def host_pids(self) -> list[int]:
        children = psutil.Process(self.process.pid).children()
        return [child.pid for child in children if LOADED in _words(child)]


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextmanager
def running(command: list[str], url: str, log: Path, **variables: str) -> Iterator[Running]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("EVERYSTEP_")}
    cache = {"EVERYSTEP_CACHE_DIR": str(default_cache_dir())} if command[0] == sys.executable else {}
    server = Running(command, url, log, {**outside, "PYTHONPATH": str(ROOT / "src"), **cache, **variables})
    try:
        yield server
    finally:
        server.http.close()
        server.process.terminate()
        try:
            server.process.wait(60)
        finally:
            end_group(server.process.pid)


def free_url() -> str:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def everystep(url: str, *flags: str) -> list[str]:
    port = url.rpartition(":")[2]
    return [sys.executable, "-m", "everystep", "serve", "--port", port, "--max-model-len", "1024", *flags]


@pytest.fixture(scope="module")
def beside(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Our lanes in float32 and vLLM beside them, not waited for."""
    url = free_url()
    flags = ["--vllm-python", vllm_python, "--vllm-arg", "enforce_eager=true", "--precision", "f32"]
    command = everystep(url, *flags, "--max-num-seqs", "16", "--request-timeout", str(DEADLINE_S))
    with running(command, url, tmp_path_factory.mktemp("beside") / "log") as server:
        yield server


@pytest.fixture
def ready(beside: Running) -> Running:
    beside.wait_until(lambda: beside.is_up("/health/ready"))
    beside.wait_until(beside.has_vllm)
    return beside


# --- beside our own lanes, in the order of one life --------------------------------------------------
def test_our_lanes_serve_while_vllm_starts(beside: Running) -> None:
    beside.wait_until(lambda: beside.is_up("/health/ready"))
    reply = beside.post("/generate_vllm", prompts=["x"])
    assert reply.status_code == 503, "vLLM can't have started so soon"
    assert "vLLM is starting" in reply.json()["error"]["message"]
    assert beside.post("/generate", prompts=["x"], max_tokens=2).status_code == 200
    assert "starting" in beside.http.get("/health").json()["lanes"]["vllm"]


def test_one_prompt_several_and_none(ready: Running) -> None:
    one = ready.post("/generate_vllm", prompts=CERTAIN[:1], max_tokens=8).json()["generated_texts"]
    several = ready.post("/generate_vllm", prompts=CERTAIN, max_tokens=8).json()["generated_texts"]
    assert len(several) == len(CERTAIN)
    assert several[:1] == one
    assert ready.post("/generate_vllm", prompts=[]).json() == {"generated_texts": []}


def test_bodies_that_make_no_sense_are_refused(ready: Running) -> None:
    assert ready.post("/generate_vllm", prompts="x").status_code == 422
    assert ready.post("/generate_vllm", prompt="x").status_code == 422
    assert ready.post("/generate_vllm", prompts=["x"], policy="vllm").status_code == 422
    assert ready.post("/generate_vllm", prompts=["x"], max_tokens=5000).status_code == 400
    assert ready.http.post("/generate_vllm", content=b"{").status_code == 422


def test_greedy_texts_are_those_of_our_own_exact_lane(ready: Running) -> None:
    theirs = ready.post("/generate_vllm", prompts=CERTAIN, max_tokens=10).json()
    ours = ready.post("/generate", prompts=CERTAIN, max_tokens=10, policy="continuous").json()
    assert theirs == ours


def test_a_seed_gives_the_same_text_again(ready: Running) -> None:
    body = {"prompts": ["Once upon a time"], "max_tokens": 8, "temperature": 1.0}
    texts = [ready.post("/generate_vllm", **body, seed=seed).json() for seed in (2**64 - 1, 2**64 - 1, 3)]
    assert texts[0] == texts[1] != texts[2]


def test_logprobs_are_our_own_up_to_rounding(ready: Running) -> None:
    body = {"model": "smollm2-135m", "prompt": CERTAIN[0], "max_tokens": 4, "temperature": 0, "logprobs": 3}
    both = [ready.post("/v1/completions", **body, policy=lane).json() for lane in ("vllm", "continuous")]
    theirs, ours = (reply["choices"][0]["logprobs"] for reply in both)
    assert theirs["tokens"] == ours["tokens"]
    assert theirs["token_logprobs"] == pytest.approx(ours["token_logprobs"], abs=1e-2)
    assert [list(top) for top in theirs["top_logprobs"]] == [list(top) for top in ours["top_logprobs"]]


def test_a_stream_s_tokens_are_the_whole_text(ready: Running) -> None:
    body = {"prompt": CERTAIN[1], "max_tokens": 8, "policy": "vllm"}
    events = [line for line in ready.post("/generate_stream", **body).text.splitlines() if line.startswith("data: ")]
    whole = ready.post("/basic_generate", **body).json()["generated_text"]
    assert len(events) > 4
    assert "".join(json.loads(event.removeprefix("data: "))["token"] for event in events) == whole


def test_sixteen_at_once_are_each_answered(ready: Running) -> None:
    with ThreadPoolExecutor(16) as pool:
        bodies = [{"prompts": [CERTAIN[i % 4]], "max_tokens": 16, "ignore_eos": True} for i in range(16)]
        work = [pool.submit(lambda body=body: ready.post("/generate_vllm", **body)) for body in bodies]
        replies = [task.result().json()["generated_texts"][0] for task in work]
    assert all(replies[i] == replies[i % 4] for i in range(16))


def test_a_client_that_leaves_frees_vllm(ready: Running) -> None:
    with ready.http.stream("POST", "/generate_stream", json={"prompt": "x", "policy": "vllm", **LONG}) as reply:
        lines = reply.iter_lines()  # kept: httpx closes the connection with the iterator
        next(lines)
        ready.wait_until(lambda: ready.metric("everystep_vllm_num_requests_running") == 1, ANSWER_S)
    ready.wait_until(lambda: ready.metric("everystep_vllm_num_requests_running") == 0, DEADLINE_S / 2)
    assert ready.metric('everystep_num_requests_running{policy="vllm"}') == 0


def test_vllm_batches_what_came_at_once_and_a_deadline_ends_it(ready: Running) -> None:
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(lambda: ready.post("/generate_vllm", prompts=["x"] * 8, **LONG))
        ready.wait_until(lambda: work.done() or ready.metric("everystep_vllm_num_requests_running") > 4, ANSWER_S)
        assert not work.done(), "vLLM never said that it ran them together"
        assert work.result().status_code == 504
    ready.wait_until(lambda: ready.metric("everystep_vllm_num_requests_running") == 0, DEADLINE_S)


def test_a_killed_engine_process_fails_what_it_had_and_another_serves(ready: Running) -> None:
    processes = ready.vllm_processes()
    engine = next(process for process in processes if "EngineCor" in process.name())
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(lambda: ready.post("/generate_vllm", prompts=["a", "b"], **LONG))
        ready.wait_until(lambda: ready.metric('everystep_num_requests_running{policy="vllm"}') == 2, ANSWER_S)
        os.kill(engine.pid, signal.SIGKILL)
        reply = work.result()
    assert (reply.status_code, reply.json()["error"]["type"]) == (500, "engine_failed")
    assert ready.metric('everystep_requests_total{outcome="failed",policy="vllm"}') == 2
    assert ready.post("/generate", prompts=["x"], max_tokens=2).status_code == 200
    ready.wait_until(lambda: are_gone(processes), ANSWER_S)
    ready.wait_until(ready.has_vllm)
    assert ready.post("/generate_vllm", prompts=CERTAIN[:1], max_tokens=2).status_code == 200


def test_a_killed_host_takes_its_processes_along_and_nothing_is_left_at_the_end(ready: Running) -> None:
    [host_pid], processes = ready.host_pids(), ready.vllm_processes()
    host = psutil.Process(host_pid)
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(lambda: ready.post("/generate_vllm", prompts=["a"], **LONG))
        ready.wait_until(lambda: ready.metric('everystep_num_requests_running{policy="vllm"}') == 1, ANSWER_S)
        host.kill()
        assert work.result().status_code == 500
    ready.wait_until(lambda: are_gone([host, *processes]), ANSWER_S)
    ready.wait_until(lambda: any(pid != host_pid for pid in ready.host_pids()), ANSWER_S)  # the next one starts
    rest = psutil.Process(ready.process.pid).children(recursive=True)
    ready.process.terminate()
    assert ready.process.wait(ANSWER_S) == 0
    psutil.wait_procs(rest, timeout=10)
    assert are_gone(rest)


# --- a server of its own, for everything -------------------------------------------------------------
@pytest.fixture(scope="module")
def pair(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    """A server of ours that has no lane but vLLM's, and vLLM's own server behind it."""
    folder = tmp_path_factory.mktemp("alone")
    model = hf_folder(open_checkpoint("smollm2-135m", default_cache_dir()), default_cache_dir())
    theirs, ours = free_url(), free_url()
    command = [
        vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", "float32",
        "--max-model-len", "1024",
        "--enforce-eager", "--host", "127.0.0.1", "--port", theirs.rpartition(":")[2],
        "--kv-cache-memory-bytes", str(2**30),
    ]  # fmt: skip
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1"}
    with running(command, theirs, folder / "vllm.log", **quiet, PYTHONPATH="") as server:
        server.wait_until(lambda: server.is_up("/health"))
        flags = ["--runner", "vllm", "--vllm-url", f"{theirs}/v1"]
        with running(everystep(ours, *flags), ours, folder / "everystep.log") as front:
            front.wait_until(lambda: front.is_up("/health/ready"))
            yield front, server


@pytest.fixture
def alone(pair: tuple[Running, Running]) -> Running:
    return pair[0]


def test_every_endpoint_answers_with_it(alone: Running) -> None:
    body = {"max_tokens": 8}
    whole = alone.post("/generate_vllm", prompts=CERTAIN, **body).json()["generated_texts"]
    assert alone.post("/generate", prompts=CERTAIN, **body).json()["generated_texts"] == whole
    assert alone.post("/basic_generate", prompt=CERTAIN[0], **body).json()["generated_text"] == whole[0]
    completion = {"model": "smollm2-135m", "prompt": CERTAIN, "temperature": 0, "logprobs": 2, **body}
    choices = alone.post("/v1/completions", **completion).json()["choices"]
    assert [choice["text"] for choice in choices] == whole
    assert all(len(choice["logprobs"]["top_logprobs"][0]) == 2 for choice in choices)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    chat = {"model": "smollm2-135m", "messages": messages, "temperature": 0, "max_tokens": 12}
    assert "Paris" in alone.post("/v1/chat/completions", **chat).json()["choices"][0]["message"]["content"]
    streamed = alone.post("/v1/chat/completions", **chat, stream=True).text
    assert "Paris" in streamed
    assert streamed.endswith("data: [DONE]\n\n")
    assert alone.post("/generate", prompts=["x"], policy="static").status_code == 400


def test_leaving_ends_it_at_the_server_too(alone: Running) -> None:
    with alone.http.stream("POST", "/generate_stream", json={"prompt": "x", **LONG}) as reply:
        lines = reply.iter_lines()
        next(lines)
        alone.wait_until(lambda: alone.metric("everystep_vllm_num_requests_running") == 1, ANSWER_S)
    alone.wait_until(lambda: alone.metric("everystep_vllm_num_requests_running") == 0, ANSWER_S)


def test_a_server_that_dies_is_an_end_for_what_it_had_and_said_so_afterwards(pair: tuple[Running, Running]) -> None:
    front, behind = pair
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(lambda: front.post("/generate_vllm", prompts=["a", "b"], **LONG))
        front.wait_until(lambda: front.metric('everystep_num_requests_running{policy="vllm"}') == 2, ANSWER_S)
        end_group(behind.process.pid)
        reply = work.result()
    assert (reply.status_code, reply.json()["error"]["type"]) == (500, "engine_failed")
    front.wait_until(lambda: front.http.get("/health/ready").status_code == 503, ANSWER_S)
    assert "isn't usable" in front.post("/generate_vllm", prompts=["x"]).json()["error"]["message"]
