"""Failed passes beyond the core: recorded and replayed, ended by another worker, and ill numbers in a real model."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from everystep import LLM, SamplingParams
from everystep.engine.client import EngineClient
from everystep.engine.client.patience import Patience
from everystep.errors import EngineFailed
from everystep.messages import Submit
from everystep.observe.schedule import Stepped
from everystep.observe.schedule_reader import Turn, read_schedule
from everystep.runner.fake import FakeRunner, generate
from everystep.schedule_replay import replay_schedule
from everystep.types import FinishReason

VOCAB = 384
DEADLINE_S = 30.0
TINY_MODEL = Path(__file__).parent.parent / "golden" / "tiny" / "llama"
LANES = ("static", "per_token", "continuous")


class Picky(FakeRunner):
    """Raises for a text that begins with 13; names one that begins with 14 as failed."""

    def run(self, plan):
        firsts = {row.sequence.sequence_id: row.sequence.token_ids[0] for row in plan.rows}
        self.fails = {name: "the model gave no finite logits" for name, first in firsts.items() if first == 14}
        result = super().run(plan)
        if 13 in firsts.values():
            raise RuntimeError("the kernel is broken")
        return result


@pytest.mark.parametrize("policy", LANES)
def test_steps_with_failed_rows_are_recorded_with_their_errors_and_replayed_alike(tmp_path, policy):
    record = tmp_path / "schedule.jsonl"
    settings = {"cache_dir": tmp_path, "kv_cache_gib": 0.001, "record": record}
    with LLM(str(TINY_MODEL), make_runner=lambda: Picky(vocab_size=VOCAB), **settings) as llm:
        for firsts in ([1, 13, 2, 14, 3, 13], [13], [13, 13], [4, 5]):
            try:
                llm.generate([[first, 9, 8] for first in firsts], SamplingParams(max_tokens=5), policy=policy)
            except EngineFailed:
                assert firsts != [4, 5]
    results = [item.result for item in read_schedule(record) if isinstance(item, Turn)]
    errors = [end.error for result in results if isinstance(result, Stepped) for end in result.ends if end.error]
    assert sorted(errors) == sorted(
        ["the forward pass failed: RuntimeError: the kernel is broken"] * 5 + ["the model gave no finite logits"]
    )
    assert replay_schedule(record).is_equal


class Broken(FakeRunner):
    def run(self, plan):
        raise RuntimeError("an illegal memory access was encountered")


async def test_a_runner_that_gives_nothing_any_more_has_its_worker_replaced_with_words(make_settings, make_request):
    runners = [Broken(vocab_size=VOCAB), FakeRunner(vocab_size=VOCAB)]
    client = EngineClient(
        make_settings(drain_timeout=0.0),
        spawn=EngineClient.in_process(make_settings(), lambda: runners.pop(0))._spawn,
        patience=Patience(first_back_off_s=0.01),
    )
    await client.start()
    await client.wait_ready()
    async with asyncio.timeout(DEADLINE_S):
        words = []
        for i in range(3):
            while not client.status.is_ready:
                await asyncio.sleep(0.005)
            async with client.submit(make_request((1, 2), (3, 4), request_id=f"q{i}")) as request:
                words += [delta.error async for delta in request if delta.finish_reason is FinishReason.FAILED]
        assert words == ["the forward pass failed: RuntimeError: an illegal memory access was encountered"] * 6
        while client.status.is_ready or "3 forward passes in a row failed" not in client._backends.first.last_words:
            await asyncio.sleep(0.005)
        while not client.status.is_ready:
            await asyncio.sleep(0.005)
        async with client.submit(make_request(request_id="after")) as after:
            tokens = [token.token_id async for delta in after for token in delta.tokens]
    assert tokens == generate((1, 2, 3), 8, VOCAB)
    await client.close()


@pytest.mark.parametrize("precision", ["f32", "int8"])
@pytest.mark.parametrize("policy", LANES)
def test_ill_numbers_in_one_row_of_a_real_model_fail_that_row_and_leave_its_neighbours_their_tokens(
    cache_dir, policy, precision
):
    """One sequence's keys and values become NaN in the cache, as a broken weight or an overflow would leave them."""
    settings = {"cache_dir": cache_dir, "kv_cache_gib": 0.001, "precision": precision, "max_num_seqs": 4}
    prompts = {f"s{i}": [5 + i, 9, 33 + i] for i in range(4)}
    with LLM(str(TINY_MODEL), **settings) as llm:
        well = run_all(llm.core, policy, prompts)
    with LLM(str(TINY_MODEL), **settings) as llm:
        ill = run_all(llm.core, policy, prompts, poison="s2")
        used, hits = llm.core.pool.num_used_blocks, llm.core.lanes[policy].num_prefix_hit_tokens
    assert (used, hits) == (0, 0)
    assert ill.pop("s2")[-1] == "no token can be drawn: the largest logit is nan"
    well.pop("s2")
    assert ill == well


def run_all(core, policy, prompts, poison=None):
    """By sequence its tokens, and the error where it failed.  After two steps ``poison``'s cache is ill."""
    heard = {name: [] for name in prompts}
    for name, prompt in prompts.items():
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        core.submit(Submit(name, name, policy, tuple(prompt), params, 0, (), 0, 0.0))
    for step in range(100):
        if not core.has_work():
            break
        if step == 2 and poison is not None:
            spoil(core.runner, core.lanes[policy]._sequences[poison].block_ids[0])
        for event in core.step().events:
            heard[event.sequence_id] += [event.token.token_id] if event.token else []
            heard[event.sequence_id] += [event.error] if event.error else []
    return heard


def spoil(runner, block):
    for array in runner._cache._arrays:
        array[block] = np.nan if array.dtype == np.float32 else 0x7FC0  # bfloat16's NaN
