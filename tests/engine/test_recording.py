"""Recording an engine: refused where it can't be, written where it can, and replayed by the very engine."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from everystep import LLM, SamplingParams
from everystep.cli import run
from everystep.engine.client import EngineClient
from everystep.engine.recording import cpu_name
from everystep.errors import ConfigError, UnsupportedOption
from everystep.messages import Abort
from everystep.observe.schedule import Header, Planned, Stepped
from everystep.observe.schedule_reader import Turn, read_schedule
from everystep.runner.fake import FakeRunner
from everystep.schedule_replay import replay_engine, replay_schedule
from everystep.types import FinishReason

TINY = str(Path(__file__).parent.parent / "golden" / "tiny" / "llama")
LANES = ("static", "per_token", "continuous")
DEADLINE_S = 60.0


@pytest.fixture
def record(tmp_path):
    return tmp_path / "schedule.jsonl"


def headers_of(path):
    return [item for item in read_schedule(path) if isinstance(item, Header)]


def turns_of(path):
    return [item for item in read_schedule(path) if isinstance(item, Turn)]


def generate_some(record, cache_dir, **settings):
    """Three lanes, greedy and drawn, alone and in company, a stop string."""
    with LLM(TINY, record=record, cache_dir=cache_dir, kv_cache_gib=0.001, **settings) as llm:
        for policy in LANES:
            llm.generate([[5 + i, 9, 33] for i in range(5)], SamplingParams(max_tokens=7), policy=policy)
            llm.generate([[7, 8]], SamplingParams(max_tokens=40, temperature=1.0, ignore_eos=True), policy=policy)
        llm.generate("the", SamplingParams(max_tokens=40, temperature=1.0, n=3, stop=("e", "a", " ")))


@pytest.mark.parametrize("settings", [{"precision": "f32"}, {"precision": "int8"}, {"deterministic": True}], ids=str)
def test_what_an_offline_engine_did_a_fresh_one_does_again_token_by_token(record, cache_dir, settings):
    generate_some(record, cache_dir, **settings)
    report = replay_engine(record, {"cache_dir": cache_dir})
    assert report.is_equal, report
    assert report.notes == ()
    assert report.num_tokens > 200
    assert replay_schedule(record).num_steps == report.num_steps


def test_a_step_that_took_the_static_graph_says_so_and_the_replay_takes_it_in_the_same_steps(record, cache_dir):
    """When the static graph is ready depends on the machine's load; its sums round differently."""
    with LLM(TINY, record=record, cache_dir=cache_dir, kv_cache_gib=0.001, precision="int8") as llm:
        llm.generate([[7, 8]], SamplingParams(max_tokens=12, ignore_eos=True))
        llm.core.runner.wait_for_static_decode()
        llm.generate([[7, 8]], SamplingParams(max_tokens=12, ignore_eos=True))
    paths = [turn.result.path for turn in turns_of(record) if isinstance(turn.result, Stepped)]
    assert paths[:9] == [""] * 9  # the first pass reads the prompt, and the graph isn't begun before eight
    assert paths[13:] == ["static"] * 11
    assert replay_engine(record, {"cache_dir": cache_dir}).is_equal


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_default_model_draws_the_recorded_tokens_again_in_company_and_alone(record, smollm2_cache):
    with LLM(record=record, cache_dir=smollm2_cache, kv_cache_gib=0.25) as llm:
        for policy in LANES:
            prompts = [[1000 + 7 * i, *range(100, 110 + 9 * i)] for i in range(5)]
            llm.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True), policy=policy)
        llm.generate("Once upon a time", SamplingParams(max_tokens=12, temperature=0.9, seed=5, ignore_eos=True))
    report = replay_engine(record, {"cache_dir": smollm2_cache})
    assert report.is_equal, report
    assert report.num_tokens == 3 * 5 * 6 + 12


async def test_a_worker_that_is_killed_leaves_its_steps_and_the_next_one_goes_on_in_the_same_file(
    record, make_settings, make_request
):
    client = EngineClient(make_settings(record=record, drain_timeout=0.0, max_model_len=512))
    await client.start()
    await asyncio.wait_for(client.wait_ready(), DEADLINE_S)
    pid = client.worker_pid
    open_requests = [
        client.submit(make_request((i, 2), request_id=f"{i}", max_tokens=500, policy=LANES[i % 3])) for i in range(6)
    ]
    await client.wait_for_step(3)
    os.kill(pid, signal.SIGKILL)
    for request in open_requests:
        async for _ in request:
            pass
    while client.worker_pid in (None, pid) or not client.status.is_ready:
        await asyncio.sleep(0.01)
    async with client.submit(make_request(request_id="after")) as after:
        async for _ in after:
            pass
    await client.close()
    first, second = headers_of(record)
    assert second.first_step > first.first_step == 0
    report = replay_schedule(record)
    assert report.is_equal, report
    assert report.num_segments == 2
    assert report.num_steps >= 3 + 8


async def test_deadlines_and_clients_who_leave_stand_in_the_record_and_are_replayed(
    record, make_settings, make_request
):
    runner = FakeRunner(vocab_size=384)
    client = EngineClient.in_process(make_settings(record=record, drain_timeout=0.0), lambda: runner)
    await client.start()
    await client.wait_ready()
    late = client.submit(make_request(request_id="late", max_tokens=400, timeout_s=1e-6))
    gone = client.submit(make_request(request_id="gone", max_tokens=400))
    async for _ in late:
        pass
    async with gone:
        await anext(aiter(gone))
    async with client.submit(make_request(request_id="stays")) as stays:
        async for _ in stays:
            pass
    await client.close()
    lines = [line for turn in turns_of(record) for line in (*turn.before, *turn.during)]
    reasons = {line.sequence_id: line.reason for line in lines if hasattr(line, "reason")}
    assert reasons == {"late-0": FinishReason.TIMEOUT, "gone-0": FinishReason.ABORTED}
    report = replay_schedule(record)
    assert report.is_equal, report


def test_no_key_stands_in_the_record(record, cache_dir):
    keys = {"api_key": ("open-sesame",), "vllm_api_key": "abracadabra"}
    with LLM(TINY, runner="fake", record=record, cache_dir=cache_dir, kv_cache_gib=0.001, **keys) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=2))
    text = record.read_text()
    assert "sesame" not in text
    assert "abracadabra" not in text
    assert "key" not in str(sorted(headers_of(record)[0].settings))


def test_nothing_is_written_unless_asked(tmp_path, cache_dir):
    with LLM(TINY, runner="fake", cache_dir=cache_dir, kv_cache_gib=0.001) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=2))
    assert list(tmp_path.iterdir()) == []


def test_vllm_cant_be_recorded_and_a_file_that_cant_be_written_is_said_before_anything_starts(
    make_settings, tmp_path, capsys
):
    with pytest.raises(UnsupportedOption, match="runner='vllm' can't be recorded"):
        EngineClient(make_settings(runner="vllm", record=tmp_path / "x.jsonl"))
    nowhere = str(tmp_path / "no" / "x.jsonl")
    with pytest.raises(ConfigError, match="can't be written"):
        EngineClient(make_settings(record=nowhere))
    assert run(["serve", "--model", TINY, "--runner", "fake", "--port", "0", "--record", nowhere]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"everystep: record={nowhere}: can't be written: No such file or directory"


def test_an_offline_engine_refuses_a_file_that_it_cant_write(tmp_path, cache_dir):
    with pytest.raises(ConfigError, match="can't be written"):
        LLM(TINY, runner="fake", record=tmp_path, cache_dir=cache_dir)


def test_the_header_says_what_the_engine_is(record, cache_dir):
    with LLM(TINY, runner="fake", record=record, cache_dir=cache_dir, kv_cache_gib=0.001, max_num_seqs=7) as llm:
        info = llm.info
    (header,) = headers_of(record)
    assert (header.runner, header.block_size, header.num_blocks) == ("fake", info.block_size, info.num_blocks)
    assert header.seats == {"static": 4, "per_token": 4, "continuous": 7} == info.seats
    assert header.settings["max_num_seqs"] == 7
    assert header.cpu == cpu_name()


def test_a_core_that_isnt_recorded_tells_nobody(make_core):
    bench = make_core()
    bench.submit("a", "continuous")
    bench.core.abort(Abort("a", FinishReason.ABORTED))
    bench.submit("b", "continuous")
    bench.run()
    assert bench.ends_of("b") == [FinishReason.LENGTH]


# --- the command -----------------------------------------------------------------------------------
def replay_command(*args):
    return run(["replay", *map(str, args)])


def test_the_command_says_equal_with_0(record, cache_dir, capsys):
    generate_some(record, cache_dir, runner="fake")
    assert replay_command(record, "--cache-dir", cache_dir) == 0
    assert replay_command(record, "--schedule-only", "--json") == 0
    shown = capsys.readouterr().out
    assert "tokens are the same\n" in shown
    assert '"is_equal": true' in shown


def test_the_command_says_different_with_1_and_shows_where(record, cache_dir, capsys):
    generate_some(record, cache_dir, runner="fake")
    lines = record.read_text().splitlines(keepends=True)
    victim = [i for i, line in enumerate(lines) if line.startswith('{"line":"step"')][5]
    lines[victim] = lines[victim].replace('"tokens":[[0,', '"tokens":[[0,1', 1)
    record.write_text("".join(lines))
    assert replay_command(record, "--cache-dir", cache_dir) == 1
    shown = capsys.readouterr().out
    assert "first difference: tokens of step 5" in shown
    assert "the steps before, the same in both:" in shown


def test_a_file_that_is_no_recording_is_wrong_usage_and_no_difference(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("dear diary\n")
    assert replay_command(tmp_path / "notes.txt") == 2
    assert replay_command(tmp_path / "absent.jsonl") == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_flags_that_would_change_nothing_are_refused(record, capsys):
    assert replay_command(record, "--schedule-only", "--runner", "fake") == 2
    assert "runner would change nothing" in capsys.readouterr().err


def test_another_model_is_told_before_its_tokens_are_blamed(record, cache_dir, capsys):
    generate_some(record, cache_dir, runner="fake")
    other = Path(TINY).parent / "qwen2"
    status = replay_command(record, "--cache-dir", cache_dir, "--model", other)
    shown = capsys.readouterr()
    assert status == 0  # the fake runner's tokens are a hash of the text, whatever the model
    assert "content of the model: recorded" in shown.out


def test_a_step_is_planned_in_the_record_before_its_pass_runs(record, cache_dir):
    seen = []

    class Looks(FakeRunner):
        def run(self, plan):
            if record.exists() and plan.rows:
                seen.append(turns_of(record)[-1].ran)
            return super().run(plan)

    with LLM(TINY, make_runner=Looks, record=record, cache_dir=cache_dir, kv_cache_gib=0.001) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))
    assert [plan.step for plan in seen if isinstance(plan, Planned)] == [0, 1, 2]


def test_a_runner_of_the_users_own_is_replayed_by_its_schedule_only(record, cache_dir):
    class Mine(FakeRunner):
        name = "mine"

    with LLM(TINY, make_runner=Mine, record=record, cache_dir=cache_dir, kv_cache_gib=0.001) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=3, ignore_eos=True))
    with pytest.raises(UnsupportedOption, match="a runner of its user's, mine"):
        replay_engine(record, {"cache_dir": cache_dir})
    assert replay_schedule(record).num_tokens == 3
