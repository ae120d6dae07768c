"""Requests of every kind on a real server, and what became of each when its worker is killed among them.

Owns the load and the reading of ends.  Ignorant of who kills and of what is expected.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

DEADLINE_S = 60.0
LONG = {"max_tokens": 60, "ignore_eos": True}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a list, static": ("/generate", {"prompts": ["a", "b c", "d e f", "g", "h", "i j"], **LONG}),
    "one, static": ("/basic_generate", {"prompt": "a b", **LONG}),
    "a stream, per_token": ("/generate_stream", {"prompt": "a b c", **LONG}),
    "a list, continuous": ("/generate", {"prompts": ["a", "b c", "d"], "policy": "continuous", **LONG}),
    "choices": ("/v1/completions", {"model": "m", "prompt": "a b", "n": 3, **LONG}),
    "choices, streamed": ("/v1/completions", {"model": "m", "prompt": ["a", "b"], "n": 2, "stream": True, **LONG}),
    "a chat, streamed": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "a"}],
                                                  "stream": True, "policy": "static", **LONG}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended: ``served``, or the type of its error; and when, on the monotonic clock."""

    kind: str
    status: int
    end: str
    num_ends: int  # errors and regular ends that the client saw; exactly 1, or nobody knows what happened
    at_s: float


def flags() -> list[str]:
    return ["--served-model-name", "m", "--max-model-len", "512", "--max-num-seqs", "16"]


async def ask(client: httpx.AsyncClient, kind: str) -> Outcome:
    """Send a request and read it to its end."""
    path, body = KINDS[kind]
    reply = await client.post(path, json=body)
    if reply.headers["content-type"].startswith("text/event-stream"):
        end, num_ends = _end_of_stream(reply.text)
    else:
        error = reply.json().get("error")
        end, num_ends = (error["type"] if error else "served"), 1
    return Outcome(kind, reply.status_code, end, num_ends, time.monotonic())


def _end_of_stream(text: str) -> tuple[str, int]:
    """An error event is an end, and nothing may follow it; a regular end is ``[DONE]``, or the end of the body."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    errors = [json.loads(item)["error"]["type"] for item in data if item != "[DONE]" and "error" in json.loads(item)]
    if not errors:
        return "served", 1
    is_last = data[-1] != "[DONE]" and "error" in json.loads(data[-1])
    return errors[0], len(errors) + (not is_last)


class Load:
    """``num_each`` clients of each kind that ask again as soon as they are answered, until told to stop."""

    def __init__(self, url: str, num_each: int) -> None:
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, limits=limits)
        self.outcomes: list[Outcome] = []
        self._is_over = False
        self._clients = [asyncio.create_task(self._keep_asking(kind)) for kind in KINDS for _ in range(num_each)]

    async def _keep_asking(self, kind: str) -> None:
        while not self._is_over:
            outcome = await ask(self.client, kind)
            self.outcomes.append(outcome)
            if outcome.status == httpx.codes.SERVICE_UNAVAILABLE:
                await until_ready(self.client)

    async def steps(self, num: int) -> None:
        """Wait until so many more steps are made."""
        last = await self.newest_step()
        while await self.newest_step() < last + num:
            await asyncio.sleep(0.005)

    async def somebody_is_open(self) -> None:
        """Wait until a request is accepted and not answered, as will be where the worker stands still."""
        while (found := await balance(self.client))["running"] + found["waiting"] == 0:
            pass

    async def newest_step(self) -> int:
        text = (await self.client.get("/metrics")).text
        return int(float(re.findall(r"^everystep_step_seconds_count (\S+)$", text, re.MULTILINE)[0]))

    async def end(self) -> list[Outcome]:
        """Let everybody be answered; all outcomes."""
        self._is_over = True
        await asyncio.wait_for(asyncio.gather(*self._clients), DEADLINE_S)
        return self.outcomes


async def until_ready(client: httpx.AsyncClient) -> list[str]:
    """Wait for it; the reasons given meanwhile."""
    reasons: list[str] = []
    while (reply := await client.get("/health/ready")).status_code != httpx.codes.OK:
        reasons.append(reply.json()["reason"])
        await asyncio.sleep(0.02)
    return reasons


async def balance(client: httpx.AsyncClient) -> dict[str, int]:
    """Accepted, ended by outcome, running and waiting, over all lanes."""
    text = (await client.get("/metrics")).text
    found: dict[str, int] = {}
    patterns = {
        "accepted": r"^everystep_requests_accepted_total\{.*\} (\S+)$",
        "running": r"^everystep_num_requests_running\{.*\} (\S+)$",
        "waiting": r"^everystep_num_requests_waiting\{.*\} (\S+)$",
        "ended": r'^everystep_requests_total\{outcome="(?!rejected)[a-z]+",.*\} (\S+)$',
        "restarts": r"^everystep_worker_restarts_total (\S+)$",
    }
    for name, pattern in patterns.items():
        found[name] = sum(int(float(value)) for value in re.findall(pattern, text, re.MULTILINE))
    return found


def workers_of(server_pid: int) -> list[psutil.Process]:
    """The living worker processes of a server; not Python's own resource tracker, nor one that hasn't been reaped."""
    return [child for child in psutil.Process(server_pid).children() if _is_worker(child)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return False
