"""OpenVINO GenAI as a contender: a process of its own, spoken to in JSON lines.

Owns that process and this side of the conversation.  Ignorant of the library, which lives in another Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everystep.analysis.load import Load, closed
from everystep.analysis.outcome import Answer, Outcome
from everystep.bench.open_http import pass_of
from everystep.bench.passes import BenchFailed, Pass
from everystep.bench.peers.everystep_server import last_line
from everystep.bench.peers.process_tree import end
from everystep.bench.served import Client, Served, check_answers

WORKER = Path(__file__).with_name("genai_worker.py")
MAX_LINE_BYTES = 2**26  # arrivals of a thousand prompts with a thousand tokens each
LABEL = "OpenVINO GenAI"


class GenaiContender:
    """Times are taken in its process: there is no server, and so no round trip."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        """Call :meth:`hello` once before anything else."""
        self.engine = "openvino-genai"
        self.policy = "continuous"
        self.label = LABEL
        self.about = ""
        self.pid = process.pid
        self._process = process
        self._log = log

    async def hello(self) -> float:
        """Seconds that loading took."""
        words = await self._read()
        self.about = words["about"]
        return float(words["start_s"])

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        return pass_of(await self.serve(closed(len(prompts), len(prompts[0]), max_tokens), prompts), self.label)

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        """Nothing is sent while the load runs, so there is no lag: requests are added when due, between two steps."""
        cpu_start_s = time.process_time()
        assert self._process.stdin is not None
        order = {
            "prompts": prompts,
            "max_tokens": [arrival.output_tokens for arrival in load],
            "at_s": [arrival.at_s for arrival in load],
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        await self._process.stdin.drain()
        reply = await self._read()
        answers = tuple(map(Answer, load, map(tuple, reply["arrivals_s"]), reply["num_tokens"]))
        check_answers(self.label, answers)
        num_prompt_tokens = sum(len(prompt) for prompt in prompts)
        client = Client(time.process_time() - cpu_start_s)
        return Served(Outcome(answers, reply["wall_s"]), client, num_prompt_tokens)

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise BenchFailed(f"{LABEL} ended with status {status}: {last_line(self._log)}")
        return dict(json.loads(line))


@asynccontextmanager
async def running_genai(python: str, model: Path, limits: Sequence[str], log: Path) -> AsyncIterator[GenaiContender]:
    """Start it on a GGUF file or an IR folder; ended when left."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            python, str(WORKER), "--model", str(model), *limits,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=out,
            limit=MAX_LINE_BYTES, env=dict(os.environ), start_new_session=True,
        )  # fmt: skip
    try:
        yield GenaiContender(process, log)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.shield(end(process))


def is_readable_by_genai(model: Path) -> bool:
    return model.suffix == ".gguf" or (model / "openvino_model.xml").is_file()
