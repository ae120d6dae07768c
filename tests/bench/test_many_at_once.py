"""The benchmark's client opens a connection for each open request, however many: it never queues what is due."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import httpx

from everystep.analysis.load import Arrival
from everystep.bench.apis import Completions
from everystep.bench.open_http import LIMITS, TIMEOUT, serve_over_http

BENCH = Path(__file__).parents[2] / "src" / "everystep" / "bench"
NUM_REQUESTS = 250  # well above the hundred at which usual clients begin to queue
EVENTS = (
    b'data: {"choices":[{"index":0,"text":"a","finish_reason":"length"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(EVENTS), EVENTS)


async def test_250_requests_due_at_once_are_all_at_the_server_before_one_is_answered() -> None:
    """The server answers nobody until all have come: a client with a cap would wait for ever."""
    num_open, all_here = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_open
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(length)
        num_open += 1
        if num_open == NUM_REQUESTS:
            all_here.set()
        await all_here.wait()
        writer.write(REPLY)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=NUM_REQUESTS)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=LIMITS, trust_env=False) as http:
        load = [Arrival(0.0, 1, 1)] * NUM_REQUESTS
        served = await serve_over_http(http, Completions("m"), load, [[5]] * NUM_REQUESTS, "a crowd")
    assert [answer.error for answer in served.outcome.answers] == [None] * NUM_REQUESTS


def test_whoever_sends_loads_sends_them_with_these_limits() -> None:
    """But the one who only asks whether a server is ready yet, one request after the other."""
    without: list[str] = []
    for path in sorted(BENCH.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "httpx.AsyncClient":
                named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                if named.get("limits") != "LIMITS":
                    without.append(path.name)
    assert without == ["everystep_server.py"]
    assert LIMITS.max_connections is None
