"""Long lists of ids are read, and turned into text where it is wanted, in a thread: the event loop goes on."""

from __future__ import annotations

import threading

import pytest

from api.harness import Server, serving
from everystep.api import prompts
from everystep.api.off_loop import LONG


@pytest.mark.parametrize("prompt", [[5] * 511, [[5] * 400] * (LONG // 400)], ids=["one short list", "many"])
async def test_ids_are_checked_in_a_thread_where_there_are_many(
    monkeypatch: pytest.MonkeyPatch, prompt: list[int] | list[list[int]]
) -> None:
    threads: set[threading.Thread] = set()
    check = prompts.check_ids

    def watched(*args: object) -> None:
        threads.add(threading.current_thread())
        check(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(prompts, "check_ids", watched)
    async with serving() as server:
        assert (await server.complete(prompt, max_tokens=1)).status_code == 200
    is_long = isinstance(prompt[0], list)
    assert (threading.current_thread() in threads) != is_long
    assert threads


async def test_the_order_of_lists_is_kept(server: Server) -> None:
    lists = [[5 + i] * 400 for i in range(LONG // 400)]
    reply = (await server.complete(lists, max_tokens=1, echo=True)).json()
    expected = [server.engine.tokenizer.decode(ids, skip_special=False) for ids in lists]
    assert all(choice["text"].startswith(text) for choice, text in zip(reply["choices"], expected, strict=True))
