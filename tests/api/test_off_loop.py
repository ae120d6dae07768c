"""Nothing that takes long holds up the event loop, on which every neighbour's stream is waiting."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api.harness import Server
from everystep.api import off_loop, openai_chat, openai_completions
from everystep.api.logprobs import CompletionLogprobs, chat_logprobs


async def in_which_thread(size: int) -> threading.Thread:
    return await off_loop.off_loop_if_long(size, threading.current_thread)


async def test_short_work_stays_on_the_loop_and_long_work_leaves_it() -> None:
    assert await in_which_thread(off_loop.LONG - 1) is threading.current_thread()
    assert await in_which_thread(off_loop.LONG) is not threading.current_thread()


@pytest.mark.parametrize("size", ["short", "long"])
async def test_a_reply_with_many_logprobs_is_put_together_in_a_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr(off_loop, "LONG", 30)
    threads: list[threading.Thread] = []

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return chat_logprobs(*args)

    class Noted(CompletionLogprobs):
        def of(self, tokens: Any) -> Any:
            threads.append(threading.current_thread())
            return super().of(tokens)

    monkeypatch.setattr(openai_chat, "chat_logprobs", noted)
    monkeypatch.setattr(openai_completions, "CompletionLogprobs", Noted)
    max_tokens = 4 if size == "short" else 6  # with 4 alternatives each: 20 or 30
    reply = await server.complete("x", max_tokens=max_tokens, logprobs=4, ignore_eos=True)
    assert len(reply.json()["choices"][0]["logprobs"]["tokens"]) == max_tokens
    reply = await server.chat("x", max_tokens=max_tokens, logprobs=True, top_logprobs=4, ignore_eos=True)
    assert len(reply.json()["choices"][0]["logprobs"]["content"]) == max_tokens
    assert len(threads) == 2
    for thread in threads:
        assert (thread is threading.current_thread()) == (size == "short")


async def test_long_lists_of_ids_are_turned_into_text_in_a_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    decode = server.engine.tokenizer.decode

    def noted(*args: Any, **kwargs: Any) -> str:
        threads.append(threading.current_thread())
        return decode(*args, **kwargs)

    monkeypatch.setattr(server.engine.tokenizer, "decode", noted)
    monkeypatch.setattr(off_loop, "LONG", 5)
    for num_ids in (4, 5):
        assert (await server.post("/detokenize", tokens=[70] * num_ids)).status_code == 200
        assert (await server.complete([70] * num_ids, echo=True, max_tokens=1)).status_code == 200
    assert [thread is threading.current_thread() for thread in threads] == [True, True, False, False]
