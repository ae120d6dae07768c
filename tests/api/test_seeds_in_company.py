"""A seeded answer is the same alone and in any company, in every lane; another seed gives another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.real_model import Asked, asking

LANES = ["static", "per_token", "continuous"]


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    async with asking(tmp_path) as ready:
        yield ready


async def text(asked: Asked, lane: str, **options: Any) -> str:
    body = {"model": "tiny", "prompt": "once upon a time", "max_tokens": 16, "ignore_eos": True, "policy": lane}
    reply = (await asked.http.post("/v1/completions", json=body | {"logprobs": 0} | options)).json()
    return " ".join(reply["choices"][0]["logprobs"]["tokens"])


@pytest.mark.parametrize("lane", LANES)
async def test_neighbours_with_and_without_seeds_change_no_seeded_answer(asked: Asked, lane: str) -> None:
    alone = [await text(asked, lane, seed=seed) for seed in (1, 2, 3)]
    assert len(set(alone)) == 3, "different seeds gave equal answers"
    assert alone[0] == await text(asked, lane, seed=1)
    company = [{"seed": 1}, {}, {"temperature": 0}, {"seed": 2, "max_tokens": 5}, {}, {"seed": 2}, {"prompt": "x"}]
    for turn in range(3):
        crowd = company[turn:] + company[:turn]
        found = await asyncio.gather(*(text(asked, lane, **options) for options in crowd))
        assert found[crowd.index({"seed": 1})] == alone[0]
        assert found[crowd.index({"seed": 2})] == alone[1]


@pytest.mark.parametrize("lane", LANES)
async def test_answers_without_a_seed_differ(asked: Asked, lane: str) -> None:
    assert len({await text(asked, lane) for _ in range(4)}) == 4


async def test_choices_of_a_seeded_request_differ_and_come_again(asked: Asked) -> None:
    body = {"model": "tiny", "prompt": "once", "max_tokens": 8, "n": 4, "seed": 5, "ignore_eos": True, "logprobs": 0}
    replies = [(await asked.http.post("/v1/completions", json=body)).json()["choices"] for _ in range(2)]
    first, second = [[choice["logprobs"]["tokens"] for choice in choices] for choices in replies]
    assert first == second
    assert len({tuple(tokens) for tokens in first}) == 4
