"""Reading prompts never holds up the event loop."""

from __future__ import annotations

import threading

import pytest

from api.harness import Server
from everystep.api.off_loop import LONG


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "a" * LONG}),
        ("/generate", {"prompts": ["a" * (LONG // 2)] * 2}),
        ("/v1/completions", {"model": "tiny", "prompt": "a" * LONG}),
    ],
)
async def test_long_texts_are_read_in_another_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, body: dict
) -> None:
    threads = set()
    encode = type(server.engine.tokenizer).encode_prompt

    def watched(self, text: str) -> list[int]:
        threads.add(threading.current_thread())
        return encode(self, text)

    monkeypatch.setattr(type(server.engine.tokenizer), "encode_prompt", watched)
    await server.post(path, **body)
    assert threads
    assert threading.current_thread() not in threads


async def test_chats_are_rendered_in_another_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    encode = type(server.engine.tokenizer).encode_chat

    def watched(self, *args: object, **options: object) -> list[int]:
        threads.add(threading.current_thread())
        return encode(self, *args, **options)

    monkeypatch.setattr(type(server.engine.tokenizer), "encode_chat", watched)
    await server.chat("Hi", max_tokens=1)
    assert threads
    assert threading.current_thread() not in threads
