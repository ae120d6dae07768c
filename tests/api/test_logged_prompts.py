"""Prompts and answers are in no log line of any level, unless ``--log-prompts`` asks for the prompts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from api.harness import Server, serving
from everystep.observe.logs import JsonFormatter, LineFormatter

PROMPT = "tell nobody:\nthe sparrow"
ANSWER = "flies at dawn"


class Kept(logging.Handler):
    """Everything that any logger says, as it would be written."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [LineFormatter().format(record), JsonFormatter().format(record)]


@pytest.fixture
def log() -> Iterator[Kept]:
    kept, before = Kept(), {}
    for name in ("", "everystep", "uvicorn"):
        logger = logging.getLogger(name)
        before[name] = (logger.level, logger.propagate)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(kept)
    yield kept
    for name, (level, propagates) in before.items():
        logger = logging.getLogger(name)
        logger.removeHandler(kept)
        logger.setLevel(level)
        logger.propagate = propagates


async def ask_everywhere(server: Server) -> int:
    """The prompt to every endpoint that takes one, well and badly; how many were let in."""
    server.runner.say(PROMPT, ANSWER)
    replies = [
        await server.post("/basic_generate", prompt=PROMPT),
        await server.post("/generate", prompts=[PROMPT, PROMPT]),
        await server.post("/generate_stream", prompt=PROMPT),
        await server.complete(PROMPT),
        await server.complete([PROMPT], stream=True),
        await server.chat(PROMPT, stream=True),
        await server.chat(PROMPT),
    ]
    assert {reply.status_code for reply in replies} == {200}
    assert ANSWER in replies[0].text
    refused = [
        await server.post("/tokenize", prompt=PROMPT),
        await server.post("/basic_generate", prompt=[PROMPT]),
        await server.post("/basic_generate", prompt=PROMPT, max_tokens=PROMPT),
        await server.post("/basic_generate", prompt=PROMPT * 2000),
        await server.complete(PROMPT, stop=PROMPT, n=99999),
        await server.post("/generate_vllm", prompts=[PROMPT]),
    ]
    assert [reply.status_code for reply in refused[1:]] == [422, 422, 400, 400, 503]
    return len(replies)


async def test_no_line_of_any_level_holds_a_prompt_or_an_answer(log: Kept) -> None:
    async with serving() as server:
        await ask_everywhere(server)
    assert log.lines, "something was said"
    for line in log.lines:
        assert "sparrow" not in line
        assert "dawn" not in line


async def test_where_asked_each_prompt_that_is_let_in_is_one_line_and_no_answer(log: Kept) -> None:
    async with serving(log_prompts=True) as server:
        num_requests = await ask_everywhere(server)
    lines = [line for line in log.lines[::2] if "sparrow" in line]
    assert len(lines) == num_requests + 1  # one has two prompts
    assert all("\n" not in line and "INFO" in line and "prompt" in line for line in lines)
    assert not any("dawn" in line for line in log.lines)
