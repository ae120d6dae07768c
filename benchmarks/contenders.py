"""One engine, measured from inside its own process.

Run by ``against_openvino_genai.py`` with the Python that has the engine; speaks JSON lines.  First line out: what was
loaded and in how many seconds.  Then for each line in, ``{"prompts": [[int]], "output_tokens": int}``, a line out:
``{"wall_s": float, "output_tokens": int}``.  Greedy, end of text ignored, prompts as token ids: all do the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Protocol

from start import free_port

SEATS, BUDGET, CACHE_GIB = 64, 512, 2
START_DEADLINE_S = 300.0


class Engine(Protocol):
    """``run`` returns when all prompts have all their tokens, and says how many tokens that were."""

    about: str

    def run(self, prompts: list[list[int]], output_tokens: int) -> int: ...


class EverystepInProcess:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        from everystep import LLM

        self.llm = LLM(model, max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, kv_cache_gib=CACHE_GIB, **options)
        settle = getattr(self.llm.core.runner, "wait_for_static_decode", None)
        if settle:
            settle()
        self.about = f"everystep, continuous lane, in process, {self.llm.info.precision}"

    def run(self, prompts: list[list[int]], output_tokens: int) -> int:
        from everystep import SamplingParams

        params = SamplingParams(max_tokens=output_tokens, ignore_eos=True)
        return sum(len(out.token_ids) for out in self.llm.generate(prompts, params, policy="continuous"))


class Served:
    """An engine behind HTTP: a server of its own on a free port, ended with :meth:`close`."""

    def __init__(self, command: list[str], ready_path: str, about: str) -> None:
        port = free_port()
        self._server = subprocess.Popen([*command, "--port", str(port)], stdout=sys.stderr)
        self._url = f"http://127.0.0.1:{port}"
        _await_http(self._url + ready_path, self._server)
        self.about = about

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


class EverystepHttp(Served):
    """The whole server: one request that carries all prompts."""

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        limits = [f"--max-num-seqs={SEATS}", f"--max-num-batched-tokens={BUDGET}", f"--kv-cache-gib={CACHE_GIB}"]
        command = [sys.executable, "-m", "everystep", "serve", f"--model={model}", "--log-level=warning"]
        super().__init__([*command, *limits, *flags], "/health/ready", "everystep, continuous lane, over HTTP")

    def run(self, prompts: list[list[int]], output_tokens: int) -> int:
        body = {"model": "m", "prompt": prompts, "max_tokens": output_tokens, "temperature": 0, "ignore_eos": True}
        with urllib.request.urlopen(f"{self._url}/v1/models") as reply:
            body["model"] = json.load(reply)["data"][0]["id"]
        return int(_post(f"{self._url}/v1/completions", body)["usage"]["completion_tokens"])


class OpenVINOGenAI:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import openvino_genai

        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = CACHE_GIB, SEATS
        scheduler.max_num_batched_tokens = BUDGET
        self._genai = openvino_genai
        self._pipe = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", dict(options))
        self.about = f"OpenVINO GenAI {openvino_genai.get_version()} ContinuousBatchingPipeline"

    def run(self, prompts: list[list[int]], output_tokens: int) -> int:
        import numpy as np
        import openvino as ov

        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = output_tokens, True, False
        tensors = [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
        results = self._pipe.generate(tensors, [config] * len(tensors))
        return sum(len(result.m_generation_ids[0]) for result in results)


class LlamaCpp(Served):
    """llama.cpp's server, found as ``llama-server`` on the PATH or named by ``LLAMA_SERVER``."""

    def __init__(self, model: str, options: dict[str, Any]) -> None:
        program = os.environ.get("LLAMA_SERVER", "llama-server")
        command = [program, "-m", model, "-np", str(SEATS), "-c", str(SEATS * 512), "--no-webui"]
        super().__init__(command, "/health", "llama.cpp server")

    def run(self, prompts: list[list[int]], output_tokens: int) -> int:
        from concurrent.futures import ThreadPoolExecutor

        def one(prompt: list[int]) -> int:
            body = {"prompt": prompt, "n_predict": output_tokens, "temperature": 0, "ignore_eos": True}
            return int(_post(f"{self._url}/completion", {**body, "cache_prompt": False})["tokens_predicted"])

        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(one, prompts))


ENGINES = {
    "everystep": EverystepInProcess,
    "everystep-http": EverystepHttp,
    "openvino-genai": OpenVINOGenAI,
    "llama.cpp": LlamaCpp,
}


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def _await_http(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with status {server.returncode}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url) as reply:
            if reply.status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"{url} wasn't ready in {START_DEADLINE_S:g} s")


def _orders() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines that print must not disturb the JSON lines
    start = time.monotonic()
    engine: Any = ENGINES[arguments.engine](arguments.model, arguments.options)
    engine.run([[1, 2, 3]], 2)
    print(json.dumps({"about": engine.about, "first_tokens_s": time.monotonic() - start}), file=out)
    for order in _orders():
        start = time.monotonic()
        count = engine.run(order["prompts"], order["output_tokens"])
        print(json.dumps({"wall_s": time.monotonic() - start, "output_tokens": count}), file=out)
    if hasattr(engine, "close"):
        engine.close()


if __name__ == "__main__":
    main()
