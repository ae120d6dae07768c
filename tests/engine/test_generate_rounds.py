"""Rounds of ``generate()`` through the whole engine: every size, random arrivals, real weights, HTTP.  Needs torch."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.harness import events
from everystep.api import create_app
from everystep.checkpoint import hf_folder, open_checkpoint
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.types import FinishReason
from runner.generate_bench import Calls, Case, Rounds

pytestmark = pytest.mark.torch

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = ["llama3", "mistral", "qwen2", "opt", "gpt2"]
SIZES = [1, 4, 16, 64]
FIVE = ["Hello, I am", "The weather is", "I want to", "The best way to", "The most efficient way to"]


def golden_cases(path: Path) -> list[Case]:
    return [(case["prompt_token_ids"], case["output_token_ids"]) for case in json.loads(path.read_text())["cases"]]


def make_runner(folder: Path, num_threads: int = 1) -> Any:
    from everystep.runner.generate import GenerateRunner

    return GenerateRunner(folder, precision="f32", num_threads=num_threads)


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "everystep-generate"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Any, list[Case]]]:
    folder = GOLDEN / "tiny" / request.param
    runner = make_runner(folder)
    yield folder, runner, golden_cases(folder / "golden.json")
    runner.close()


@pytest.mark.parametrize("seats", [4, 64])
def test_every_size_gives_the_tokens_of_a_single_greedy_run_one_call_a_round(
    family: tuple[Path, Any, list[Case]], seats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, runner, cases = family
    for size in SIZES:
        rounds = Rounds(folder, runner, static_batch_size=seats)
        chosen = [cases[i % len(cases)] for i in range(size)]
        rounds.submit_cases(chosen)
        with Calls().watched(monkeypatch) as calls:
            rounds.run()
        assert [rounds.tokens(i) for i in range(size)] == [output for _, output in chosen], f"N={size}"
        assert len(calls.shapes) == -(-size // seats)
        assert calls.shapes == rounds.shapes


def test_random_arrivals_and_aborts_change_no_token(family: tuple[Path, Any, list[Case]]) -> None:
    folder, runner, cases = family
    rounds, rng = Rounds(folder, runner), random.Random(3)
    expected: dict[str, list[int]] = {}
    arrivals = [(f"s{i}", *cases[i % len(cases)]) for i in range(30)]
    while arrivals or rounds.core.has_work():
        for _ in range(rng.randrange(3)):
            if arrivals:
                name, prompt, output = arrivals.pop()
                expected[name] = output[: rng.randrange(1, len(output) + 1)]
                rounds.submit(name, prompt, len(expected[name]))
        rounds.step()
        open_ones = [name for name in expected if name not in rounds.ends]
        if open_ones and rng.random() < 0.2:
            rounds.abort(rng.choice(open_ones))
    rounds.run()
    for name, output in expected.items():
        got = rounds.tokens(name)
        assert got == output[: len(got)]
        assert got == output or rounds.ends[name] is FinishReason.ABORTED
    assert FinishReason.ABORTED in rounds.ends.values()


# --- over HTTP -----------------------------------------------------------------------------------
@asynccontextmanager
async def serving(model: str, folder: Path, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, EngineClient]]:
    """A ready server whose worker, a thread of this process, runs ``generate()``."""
    options = {"runner": "hf-generate", "drain_timeout": 0, "kv_cache_gib": 0.25} | settings
    engine = EngineClient.in_process(Settings(model=model, **options), lambda: make_runner(folder))
    app = create_app(engine=engine)
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        await engine.wait_ready()
        yield http, engine


async def test_a_stream_brings_the_tokens_of_a_round_and_the_thread_ends_with_the_server() -> None:
    folder, before = GOLDEN / "tiny" / "opt", our_threads()
    async with serving(str(folder), folder) as (http, engine):
        body = {"prompt": "The best way to", "max_tokens": 9, "ignore_eos": True}
        reply = await http.post("/generate_stream", json=body | {"policy": "static"})
        whole = await http.post("/basic_generate", json=body)
        steps = (await http.get("/steps?since=-1")).json()["steps"]
        assert engine.info.seats == {"static": 4}
        assert (engine.info.runner, engine.info.precision) == ("hf-generate", "f32")
        assert len(our_threads()) == len(before) + 1
    streamed = [json.loads(event) for event in events(reply.text)]
    assert "".join(event["token"] for event in streamed) == whole.json()["generated_text"] != ""
    assert len({event["sequence_id"] for event in streamed}) == 1
    assert [len(list(group)) for _, group in groupby(step["rows"][0]["sequence_id"] for step in steps)] == [9, 9]
    assert our_threads() == before


@pytest.mark.timeout(600)
async def test_smollm2_answers_the_five_prompts_in_rounds_of_four_and_one(smollm2_cache: Path) -> None:
    checkpoint = open_checkpoint("smollm2-135m", smollm2_cache)
    folder = hf_folder(checkpoint, smollm2_cache)
    async with serving("smollm2-135m", folder, cache_dir=smollm2_cache) as (http, _):
        tokenised = [(await http.post("/tokenize", json={"prompt": prompt})).json() for prompt in FIVE]
        texts = (await http.post("/generate", json={"prompts": FIVE})).json()["generated_texts"]
        alone = [(await http.post("/basic_generate", json={"prompt": prompt})).json() for prompt in FIVE]
        steps = (await http.get("/steps?since=-1&limit=1000")).json()["steps"]
    lengths = [reply["count"] for reply in tokenised]
    firsts = [step["shape"] for step in steps if all(row["phase"] == "prefill" for row in step["rows"])]
    assert firsts[:2] == [[4, max(lengths[:4])], [1, lengths[4]]]
    assert texts == [reply["generated_text"] for reply in alone]
    assert all(texts)


@pytest.mark.timeout(600)
def test_smollm2_gives_transformers_tokens_in_rounds(smollm2_cache: Path) -> None:
    folder = hf_folder(open_checkpoint("smollm2-135m", smollm2_cache), smollm2_cache)
    cases = golden_cases(GOLDEN / "smollm2.json")[:14]
    runner = make_runner(folder, num_threads=2)
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    rounds.run()
    runner.close()
    assert [rounds.tokens(i) for i in range(len(cases))] == [output for _, output in cases]
