"""The event loop is never blocked, and each wait on it has a deadline or somebody who says why it ends all the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from house.waiting import Source, blocking_calls, open_ended_waits

SRC = Path(__file__).parents[2] / "src"
ROOMS = ("everystep/api/", "everystep/engine/client/", "everystep/engine/vllm/")
SOURCES = {
    str(path.relative_to(SRC)): Source(str(path.relative_to(SRC)), path.read_text(encoding="utf-8"))
    for path in sorted(SRC.rglob("*.py"))
}
ON_THE_LOOP = [path for path in SOURCES if path.startswith(ROOMS) or path.count("/") == 1]
ANYBODYS = {"__call__", "send", "receive", "wait", "read"}  # names of ours that others' awaitables have as well
OWN_ASYNC = {
    name.rpartition(".")[2]
    for path in ON_THE_LOOP
    for name, function in SOURCES[path].functions.items()
    if isinstance(function, ast.AsyncFunctionDef)
} - ANYBODYS

# What blocks, and why it may: the function at the end of the trail → the reason.
MAY_BLOCK = {
    r"serve\.py: .* → process_age_s: .*'/proc/self/stat'": "a file of the kernel's memory: no disk is waited for",
    r"vllm/remote\.py: RemoteVllm\._check_tokenizer: .*SAMPLE": "one line of text, once in a server's life",
}

# Who ends a wait that has no deadline of its own: "file | what is awaited" → the reason.
ENDS = {
    # The layers of the application: each waits for the one below, or for the connection.
    r"^api/\S+ \| .*\(scope, (receive|counted), send\w*\)$": "the layer below: its waits stand here",
    r"^api/json_bodies\.py \| handle\(JsonRequest": "the layer below: its waits stand here",
    r"^api/\S+ \| (receive|request\.receive|self\.body)\(": (
        "the client's bytes: http_protocol ends who sends nothing for --client-timeout, and tells when a client goes"
    ),
    r"^(api/\S+|http_\w+\.py) \| (self\._)?send\(": (
        "the client's reading: http_protocol ends who takes in nothing for --client-timeout"
    ),
    r"^api/sse\.py \| (aclosing\(self\._iterator\)|events|self\._send_lock)$": "the generation's deltas; then a send",
    r"^api/(sse|answers)\.py \| (self\._)?generation$": (
        "every accepted sequence ends once: its deadlines are timers on this loop, its worker's death fails it"
    ),
    r"^api/disconnects\.py \| asyncio\.(wait|gather)\(": "the answer or the client's leaving, whichever is first",
    r"^api/(prompts|observability|off_loop)\.py \| asyncio\.to_thread\((read|snapshot\.tell|work)": (
        "computing, of an input that the body's limit bounds; other requests go on meanwhile"
    ),
    # The engine's client.
    r"^engine/client/generation\.py \| self\._news\.wait\(\)$": "as above: each sequence's end comes, whatever happens",
    r"^engine/client/__init__\.py \| asyncio\.to_thread\((open_checkpoint|check_vllm_python|Tokenizer)": (
        "the start: a signal ends the wait (serve.py), and nobody is served yet"
    ),
    r"^engine/client/__init__\.py \| first\.(settled|given_up)\.wait\(\)$": (
        "the worker's start or end: the supervisor sets both; serve.py waits for a signal beside it"
    ),
    r"^engine/client/__init__\.py \| asyncio\.shield\(self\._step_news\)$": (
        "the next step, which may never come: a reader of /steps/stream, pinged, ended with its connection"
    ),
    r"^engine/client/supervisor\.py \| asyncio\.to_thread\(self\._spawn_noted": "a process's start; a stop passes it",
    r"^engine/client/supervisor\.py \| asyncio\.to_thread\(self\._handle\.join, self\._patience": "join has a deadline",
    r"^engine/client/supervisor\.py \| asyncio\.open_connection\(sock=": "a pair of sockets that is connected already",
    r"^engine/client/supervisor\.py \| reader\.read\(": (
        "the worker's next words: the watch beside it kills a worker that is silent too long, which ends the read"
    ),
    r"^engine/client/supervisor\.py \| self\._after\.wait\(\)$": "another engine's start; stop() cancels the wait",
    r"^engine/client/supervisor\.py \| asyncio\.wait\(\[self\._task\]\)$": "the supervisor's own task, just cancelled",
    r"^engine/client/backends\.py \| asyncio\.gather\(": "each engine's stop, whose waits stand here",
    # vLLM: its host's process, and servers elsewhere.
    r"^engine/vllm/host\.py \| (reader\.read|asyncio\.wait|asyncio\.gather|asyncio\.open_connection)\(": (
        "a process for this alone: its parent's end closes the socket, and a silent one is killed"
    ),
    r"^engine/vllm/host\.py \| writer\.drain\(\)$": "the parent reads all the time; its end breaks the pipe",
    r"^engine/vllm/remote\.py \| reply\.(aiter_lines|aread)\(\)$": (
        "a sequence elsewhere: its deadlines are timers of ours, which cancel the task"
    ),
    r"^engine/vllm/remote\.py \| (asyncio\.gather\(\*tasks|self\._http\.aclose)": "tasks just cancelled; closing",
    r"^engine/vllm/remote\.py \| asyncio\.to_thread\(self\._make_tokenizer\)$": "computing, once",
    # The process.
    r"^serve\.py \| asyncio\.wait\(\[(starting, stop|stop, ready, serving|stop, lost, serving)\]": (
        "the server's life: until a signal, or until it can't go on"
    ),
    r"^serve\.py \| (asyncio\.wait\(\[starting\]\)|serving)$": "a task told to end; a second signal leaves at once",
}


def waits() -> list[str]:
    return [
        f"{path.removeprefix('everystep/')} | {wait}"
        for path in ON_THE_LOOP
        for wait in open_ended_waits(SOURCES[path], OWN_ASYNC)
    ]


def test_nothing_on_the_loop_blocks() -> None:
    found = blocking_calls(ON_THE_LOOP, SOURCES)
    unforeseen = [line for line in found if not any(re.search(pattern, line) for pattern in MAY_BLOCK)]
    assert unforeseen == [], "hand it to a thread, or say here why it takes no time"
    for pattern in MAY_BLOCK:
        assert any(re.search(pattern, line) for line in found), f"nothing matches {pattern} any more"


def test_each_wait_without_a_deadline_has_somebody_who_says_why_it_ends() -> None:
    unforeseen = [wait for wait in waits() if not any(re.search(pattern, wait) for pattern in ENDS)]
    assert unforeseen == [], "give it a deadline, or say here who ends it"


def test_each_reason_is_still_needed() -> None:
    found = waits()
    stale = [pattern for pattern in ENDS if not any(re.search(pattern, wait) for wait in found)]
    assert stale == []


def test_the_rooms_that_use_the_loop_are_looked_at() -> None:
    assert {"everystep/serve.py", "everystep/api/native.py", "everystep/engine/client/supervisor.py"} <= {*ON_THE_LOOP}
    users = {path for path, source in SOURCES.items() if re.search(r"^\s*async def ", source.text, re.MULTILINE)}
    assert {path for path in users if not path.startswith("everystep/bench/")} <= {*ON_THE_LOOP}


# --- the checker can fail ------------------------------------------------------------------------
def made(text: str) -> Source:
    return Source("everystep/api/made.py", text)


@pytest.mark.parametrize(
    "body",
    [
        "open('x')",
        "time.sleep(1)",
        "subprocess.run(['ls'])",
        "requests.get('x')",
        "path.read_text()",
        "tokenizer.encode_prompt(text)",
        "value = [open(x) for x in y]",
        "helper()",
        "self.helper()",
    ],
)
def test_a_call_that_blocks_is_found_also_in_a_plain_function_on_the_way(body: str) -> None:
    source = made(f"""
def helper():
    time.sleep(1)

class A:
    def helper(self):
        helper()

    async def handle(self):
        {body}
""")
    assert len(blocking_calls([source.path], {source.path: source})) == 1


def test_a_call_into_another_module_is_followed() -> None:
    other = Source("everystep/text/made.py", "def read():\n    return open('x')\n")
    source = made("from everystep.text.made import read as look\n\nasync def handle():\n    look()\n")
    (found,) = blocking_calls([source.path], {source.path: source, other.path: other})
    assert "handle → read" in found


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.to_thread(open, 'x')",
        "await asyncio.to_thread(helper)",
        "later = lambda: open('x')",
        "x = httpx.AsyncClient()",
    ],
)
def test_what_a_thread_does_or_nobody_calls_is_no_block(body: str) -> None:
    source = made(f"def helper():\n    open('x')\n\nasync def handle():\n    {body}\n")
    assert blocking_calls([source.path], {source.path: source}) == []


@pytest.mark.parametrize(
    ("body", "num_found"),
    [
        ("await event.wait()", 1),
        ("async with lock: pass", 1),
        ("async for line in reply: pass", 1),
        ("await asyncio.wait([task])", 1),
        ("await asyncio.wait([task], timeout=None)", 1),
        ("await queue.get()", 1),
        ("await task", 1),
        ("await asyncio.wait_for(event.wait(), 3)", 0),
        ("await asyncio.wait([task], timeout=3)", 0),
        ("await asyncio.sleep(1)", 0),
        ("await ours()", 0),
    ],
)
def test_a_wait_without_a_deadline_is_found(body: str, num_found: int) -> None:
    assert len(list(open_ended_waits(made(f"async def handle():\n    {body}\n"), {"ours"}))) == num_found
