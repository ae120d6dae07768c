"""One way to run prompts, in a process of its own, for ``where_the_64x.py``.

``core``: the engine's core alone, driven in this process; ``http``: the whole server, asked by a client on the same
machine.  Speaks JSON lines.  First line out: what it is.  Then for each line in an answer: see :class:`Order` and
:class:`Reply`.  Greedy, end of text ignored, prompts as token ids.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from start import free_port

from everystep.config import Settings
from everystep.engine.bootstrap import build_core
from everystep.engine.core import EngineCore
from everystep.messages import Submit
from everystep.observe.step_log import StepLog
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import Policy

BUDGET = 2048  # tokens of a continuous step: no prompt of these experiments is cut by it


@dataclass(frozen=True)
class Order:
    """All prompts at once; ``outputs[i]`` tokens for prompt ``i``."""

    lane: str  # static | per_token | continuous
    seats: int
    prompts: list[list[int]]
    outputs: list[int]
    reuse_cache: bool = True
    wants_steps: bool = False


@dataclass(frozen=True)
class Reply:
    wall_s: float
    num_tokens: int
    num_steps: int = 0
    row_steps: int = 0  # rows computed, over all steps
    held_steps: int = 0  # rows of seats whose sequence had ended
    steps: list[dict[str, Any]] | None = None


class Core:
    """A fresh pool and a fresh lane for each order, on one runner."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        core, self._info = build_core(settings, now_s=time.perf_counter)
        self._runner = core.runner
        settle: Callable[[], None] = getattr(self._runner, "wait_for_static_decode", lambda: None)
        self.run(Order("static", 1, [[5, 6, 7]], [2]))  # sets off the compilation of the lone row's graph
        settle()
        self.about = f"core, {self._info.runner} {self._info.precision}"

    def run(self, order: Order) -> Reply:
        pool = BlockPool(self._info.num_blocks, self._info.block_size, prefix_cache=False)
        lane = self._lane(order, pool)
        core = EngineCore(runner=self._runner, lanes={order.lane: lane}, pool=pool, now_s=time.perf_counter)
        log = StepLog()
        num_tokens = num_steps = row_steps = held_steps = 0
        start_s = time.perf_counter()
        for number, (prompt, output) in enumerate(zip(order.prompts, order.outputs, strict=True)):
            core.submit(_submit(number, order.lane, prompt, output, start_s))
        while core.has_work():
            output_of_step = core.step()
            assert output_of_step is not None, f"{order.lane} has work and runs nothing"
            num_tokens += sum(event.token is not None for event in output_of_step.events)
            num_steps += 1
            row_steps += output_of_step.summary.num_working
            held_steps += output_of_step.summary.num_held
            if order.wants_steps:
                log.append(output_of_step)
        wall_s = time.perf_counter() - start_s
        steps = log.since(-1, 10_000)["steps"] if order.wants_steps else None
        return Reply(wall_s, num_tokens, num_steps, row_steps, held_steps, steps)

    def _lane(self, order: Order, pool: BlockPool) -> Policy:
        longest = self._info.max_model_len
        lanes: dict[str, Callable[[], Policy]] = {
            "static": lambda: StaticPolicy(order.seats, pool=pool, max_model_len=longest),
            "per_token": lambda: PerTokenPolicy(
                order.seats, pool=pool, max_model_len=longest, reuse_cache=order.reuse_cache
            ),
            "continuous": lambda: ContinuousPolicy(order.seats, BUDGET, pool=pool, max_model_len=longest),
        }
        return lanes[order.lane]()

    def close(self) -> None:
        self._runner.close()


def _submit(number: int, lane: str, prompt: list[int], max_tokens: int, now_s: float) -> Submit:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    name = f"p{number:03d}"
    return Submit(f"{name}-0", name, lane, tuple(prompt), params, 0, (), 0, now_s)


class Http:
    """The server with the given settings, each order one request."""

    def __init__(self, settings: Settings) -> None:
        import httpx

        port = free_port()
        given = settings.model_dump(exclude_defaults=True)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        command = [sys.executable, "-m", "everystep", "serve", f"--port={port}", "--log-level=warning", *flags]
        self._server = subprocess.Popen(command, stdout=sys.stderr)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=None, trust_env=False)
        while not self._is_ready(httpx.TransportError):
            if self._server.poll() is not None:
                raise SystemExit(f"the server ended with status {self._server.returncode}")
            time.sleep(0.1)
        self._seats = {"static": settings.static_batch_size, "per_token": settings.per_token_batch_size,
                       "continuous": settings.max_num_seqs}  # fmt: skip
        self._model = settings.served_name
        self.run(Order("static", self._seats["static"], [[5, 6, 7]], [2]))
        time.sleep(3)  # the graph of a lone row is compiled after the first answer
        self.about = f"HTTP server, {settings.runner} {settings.precision}"

    def _is_ready(self, refused: type[Exception]) -> bool:
        try:
            return bool(self._http.get("/health/ready").status_code == 200)
        except refused:
            return False

    def run(self, order: Order) -> Reply:
        (output,) = set(order.outputs)
        if order.seats != self._seats[order.lane] or not order.reuse_cache:
            raise SystemExit(f"this server has {self._seats[order.lane]} seats in its lane {order.lane}")
        body = {"model": self._model, "prompt": order.prompts, "max_tokens": output, "temperature": 0,
                "ignore_eos": True, "policy": order.lane}  # fmt: skip
        start_s = time.perf_counter()
        reply = self._http.post("/v1/completions", json=body)
        wall_s = time.perf_counter() - start_s
        if reply.status_code != 200:
            raise SystemExit(f"the server answers {reply.status_code}: {reply.text:.300}")
        return Reply(wall_s, reply.json()["usage"]["completion_tokens"])

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("core", "http"))
    parser.add_argument("--settings", type=json.loads, required=True, help="of everystep, as JSON")
    given = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines that print mustn't disturb the JSON lines
    cache = os.environ.get("EVERYSTEP_CACHE_DIR")
    settings = Settings(**given.settings, cache_dir=Path(cache) if cache else None)
    engine = Core(settings) if given.kind == "core" else Http(settings)
    print(json.dumps({"about": engine.about}), file=out)
    try:
        for line in sys.stdin:
            print(json.dumps(asdict(engine.run(Order(**json.loads(line))))), file=out)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
