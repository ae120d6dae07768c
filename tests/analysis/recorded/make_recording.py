"""Makes ``smollm2.jsonl``: a real server, a real model, three lanes, stop strings, and clients that leave.

Run by hand, where the default model is: ``python tests/analysis/recorded/make_recording.py``.  Prompts are made-up
token ids, so that a published recording holds nobody's text.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx

OUT = Path(__file__).parent / "smollm2.jsonl"
LANES = ("static", "per_token", "continuous")
NUM_REQUESTS = 36
SERVE = [
    *("serve", "--port", "0", "--max-num-seqs", "6", "--max-num-batched-tokens", "48", "--max-model-len", "256"),
    *("--kv-cache-gib", "0.025", "--static-max-wait", "0.05"),
]


def body(i: int, rng: random.Random) -> dict[str, object]:
    """A request whose prompt is like no other's from its first token on."""
    prompts = [
        [1000 + 10 * i + k, *(rng.randrange(100, 49000) for _ in range(rng.randrange(2, 70)))]
        for k in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    return {
        "model": "smollm2-135m",
        "prompt": prompts,
        "max_tokens": rng.randrange(3, 26),
        "temperature": rng.choice((0.0, 0.8)),
        "policy": LANES[i % 3],
        "ignore_eos": True,
        "stream": True,
        "stop": [" the", ","] if i % 6 == 5 else [],
    }


async def one(client: httpx.AsyncClient, i: int, rng: random.Random, at_s: float) -> None:
    """Send after ``at_s``; every seventh client leaves after its first event."""
    request = body(i, rng)
    await asyncio.sleep(at_s)
    async with client.stream("POST", "/v1/completions", json=request) as response:
        response.raise_for_status()
        async for _ in response.aiter_lines():
            if i % 7 == 3:
                return


async def drive(url: str) -> None:
    rng = random.Random(4)
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        at_s, tasks = 0.0, []
        for i in range(NUM_REQUESTS):
            at_s += rng.expovariate(12.0)
            tasks.append(one(client, i, random.Random(i), at_s))
        await asyncio.gather(*tasks)


def main() -> None:
    OUT.unlink(missing_ok=True)
    command = [sys.executable, "-m", "everystep", *SERVE, "--record", str(OUT)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if found := re.search(r"http://\S+:\d+", line):
                asyncio.run(drive(found.group(0)))
                break
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


if __name__ == "__main__":
    main()
