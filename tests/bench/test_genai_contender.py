"""OpenVINO GenAI's process over JSON lines, with a pipeline of a few lines in the library's place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from everystep.analysis.load import Arrival
from everystep.bench.passes import BenchFailed
from everystep.bench.peers.genai import running_genai

LIMITS = ["--max-num-seqs=4", "--max-num-batched-tokens=64", "--cache-gib=1"]
# Two requests a step at most; prints, as the library does.
STUB = """
def get_version(): return "stub"
class SchedulerConfig: pass
class GenerationConfig: pass
class Output:
    generated_ids = [7]
class Handle:
    def __init__(self, count):
        self.left, self.ready = count, False
    def can_read(self): return self.ready
    def read(self):
        self.ready = False
        return {0: Output()}
class ContinuousBatchingPipeline:
    def __init__(self, model, scheduler, device, properties):
        assert model == "model.gguf", model
        self.handles = []
        print("loading ...")
    def add_request(self, number, ids, config):
        assert list(ids.shape) == [1, 3] and config.ignore_eos and not config.do_sample
        if ids.data[0, 0] == 13:
            raise SystemExit("unlucky")
        self.handles.append(Handle(config.max_new_tokens))
        return self.handles[-1]
    def has_non_finished_requests(self): return any(handle.left for handle in self.handles)
    def step(self):
        for handle in [handle for handle in self.handles if handle.left][:2]:
            handle.left -= 1
            handle.ready = True
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "openvino_genai.py").write_text(STUB, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


async def test_arrivals_and_counts_come_back_per_prompt(stub: Path) -> None:
    async with running_genai(sys.executable, Path("model.gguf"), LIMITS, stub / "log") as contender:
        await contender.hello()
        assert contender.about == "ContinuousBatchingPipeline stub, in process, on model.gguf"
        measured = await contender.measure([[1, 2, 3]] * 3, 4)
    assert measured.num_tokens == 12
    assert [len(times) for times in measured.arrivals_s] == [4, 4, 4]
    first, _, third = measured.arrivals_s
    assert third[0] > first[-1], "two at a time: the third begins when the first two have ended"
    assert measured.wall_s >= third[-1]
    assert "loading" in (stub / "log").read_text()


async def test_requests_of_an_open_load_go_in_when_they_are_due_with_their_own_lengths(stub: Path) -> None:
    load = [Arrival(0.0, 3, 2), Arrival(0.05, 3, 5), Arrival(0.05, 3, 1)]
    async with running_genai(sys.executable, Path("model.gguf"), LIMITS, stub / "log") as contender:
        await contender.hello()
        served = await contender.serve(load, [[1, 2, 3]] * 3)
    answers = served.outcome.answers
    assert [(answer.num_tokens, len(answer.token_times_s)) for answer in answers] == [(2, 2), (5, 5), (1, 1)]
    assert answers[0].token_times_s[-1] < answers[1].token_times_s[0], (
        "its steps cost nothing, and the others came later"
    )
    assert all(answer.ttft_s > 0 for answer in answers), "nobody is served before being due"
    assert served.client.lags_s == (), "nothing was sent"


async def test_a_pipeline_that_dies_is_an_error_with_its_last_words(stub: Path) -> None:
    async with running_genai(sys.executable, Path("model.gguf"), LIMITS, stub / "log") as contender:
        await contender.hello()
        with pytest.raises(BenchFailed, match="OpenVINO GenAI ended with status 1: unlucky"):
            await contender.measure([[13, 2, 3]], 4)
