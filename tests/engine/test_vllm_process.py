"""vLLM's process, with a stand-in for vLLM in it: started beside our lanes, killed, replaced, and ended with us."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import everystep
from engine.vllm_stand_in import are_gone, group_of, make_stand_in, tokens_after
from everystep.engine.client import EngineClient
from everystep.errors import EngineFailed, EngineUnavailable, InvalidRequest
from everystep.types import FinishReason

DEADLINE_S = 60.0


@pytest.fixture
def stand_in(tmp_path):
    return make_stand_in(tmp_path)


@pytest.fixture
async def start(make_settings, stand_in):
    """A client with our own lanes (the fake runner in a thread) and the stand-in beside them."""
    clients = []

    async def start(*, is_gate_open=True, runner="fake", **settings):
        if is_gate_open:
            stand_in.open_gate()
        given = {"drain_timeout": 0.0, "vllm_python": stand_in.python, "runner": runner, "max_model_len": 512}
        client = EngineClient.in_process(make_settings(**given | settings))
        clients.append(client)
        await client.start()
        if is_gate_open:
            await asyncio.wait_for(vllm_ready(client), DEADLINE_S)
        return client

    yield start
    for client in clients:
        await client.close()


def host_pid(client):
    return client._backends.of("vllm").worker_pid


async def until(is_so):
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def vllm_ready(client):
    def is_ready():
        try:
            client.check_ready("vllm")
        except EngineUnavailable:
            return False
        return True

    await until(is_ready)


async def collect(generation):
    tokens, ends = {}, {}
    async for delta in generation:
        tokens.setdefault(delta.sequence_id, []).extend(token.token_id for token in delta.tokens)
        if delta.finish_reason:
            assert delta.sequence_id not in ends, "a second end"
            ends[delta.sequence_id] = delta
    return tokens, ends


async def test_each_prompt_s_tokens_come_whole_and_by_their_sequence(start, make_request):
    client = await start()
    prompts = tuple((5, i) for i in range(16))
    async with client.submit(make_request(*prompts, policy="vllm", n=2)) as generation:
        tokens, ends = await collect(generation)
    for p, prompt in enumerate(prompts):
        assert tokens[f"r-{2 * p}"] == tokens[f"r-{2 * p + 1}"] == tokens_after(prompt, 8)
    assert {end.finish_reason for end in ends.values()} == {FinishReason.LENGTH}


async def test_our_lanes_are_ready_and_serve_while_vllm_starts(start, stand_in, make_request):
    client = await start(is_gate_open=False)
    await until(lambda: client.status.is_ready)
    with pytest.raises(EngineUnavailable, match=r"vLLM is starting \(\d+ s\)"):
        client.submit(make_request(policy="vllm"))
    async with client.submit(make_request()) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.LENGTH
    assert client.status.lanes["continuous"] == "ready"
    assert "starting" in client.status.lanes["vllm"]
    stand_in.open_gate()
    await asyncio.wait_for(vllm_ready(client), DEADLINE_S)
    assert client.status.lanes["vllm"] == "ready"


async def test_parameters_reach_vllm_by_its_names(start, stand_in, make_request):
    client = await start()
    request = make_request(
        policy="vllm", temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, seed=2**64 - 1, logit_bias={7: -3.0},
        presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.1, min_tokens=2, stop_token_ids=(9,),
        ignore_eos=False,
    )  # fmt: skip
    async with client.submit(request) as generation:
        await collect(generation)
    _, params = [json.loads(line) for line in stand_in.params.read_text().splitlines()]  # the first is the warm-up's
    assert params == {
        "n": 1, "max_tokens": 8, "min_tokens": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
        "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25, "logit_bias": {"7": -3.0},
        "seed": 2**63 - 1, "stop_token_ids": sorted({9, *client.tokenizer.eos_token_ids}), "ignore_eos": True,
        "logprobs": None, "detokenize": False, "output_kind": "DELTA", "skip_clone": True,
    }  # fmt: skip


async def test_what_vllm_doesn_t_take_fails_alone_as_the_client_s_fault(start, make_request):
    client = await start()
    good = client.submit(make_request(policy="vllm", request_id="good"))
    async with client.submit(make_request(policy="vllm", top_k=13, request_id="bad")) as bad:
        _, ends = await collect(bad)
    assert isinstance(ends["bad-0"].failure, InvalidRequest)
    assert "top_k must not be unlucky" in ends["bad-0"].failure.message
    async with good:
        _, ends = await collect(good)
    assert ends["good-0"].finish_reason is FinishReason.LENGTH


async def test_leaving_aborts_in_vllm_and_its_running_count_falls(start, make_request):
    client = await start()
    counts = client.observer.metrics.vllm
    async with client.submit(make_request((1, 2), (3, 4), policy="vllm", max_tokens=400)) as generation:
        await anext(aiter(generation))
        await until(lambda: counts.load.num_running == 2)
    await until(lambda: counts.load.num_running == 0)
    _, ends = await collect(generation)
    assert [end.finish_reason for end in ends.values()] == [FinishReason.ABORTED] * 2


async def test_a_deadline_ends_a_sequence_in_vllm_too(start, make_request):
    client = await start()
    async with client.submit(make_request(policy="vllm", max_tokens=400, timeout_s=0.3)) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.TIMEOUT
    await until(lambda: client.observer.metrics.vllm.load.num_running == 0)


@pytest.mark.parametrize("victim", ["host", "engine"])
async def test_a_killed_vllm_fails_what_it_had_and_only_that_and_another_one_serves(start, make_request, victim):
    client = await start()
    processes = group_of(host_pid(client))
    ours = client.submit(make_request((1, 2), request_id="ours", max_tokens=400))
    theirs = client.submit(make_request(*[(i, i) for i in range(8)], policy="vllm", request_id="v", max_tokens=400))
    await until(lambda: all(choice.is_started for choice in theirs.choices))
    engine = next(process for process in processes if "3600" in " ".join(process.cmdline()))
    os.kill(processes[0].pid if victim == "host" else engine.pid, signal.SIGKILL)
    _, ends = await asyncio.wait_for(collect(theirs), DEADLINE_S)
    assert sorted(ends) == sorted(theirs.sequence_ids)
    assert all(isinstance(end.failure, EngineFailed) for end in ends.values())
    assert "vLLM ended" in ends["v-0"].error
    _, ends = await asyncio.wait_for(collect(ours), DEADLINE_S)
    assert ends["ours-0"].finish_reason is FinishReason.LENGTH
    assert client.status.is_ready
    await until(lambda: are_gone(processes))
    await asyncio.wait_for(vllm_ready(client), DEADLINE_S)
    async with client.submit(make_request((5, 6), policy="vllm", request_id="after")) as after:
        tokens, _ = await collect(after)
    assert tokens["after-0"] == tokens_after((5, 6), 8)


async def test_a_host_that_is_stuck_is_replaced(start, make_request):
    client = await start(stall_timeout=2.0)
    pid = host_pid(client)
    stuck = client.submit(make_request(policy="vllm", max_tokens=400))
    await until(lambda: stuck.choices[0].is_started)
    os.kill(pid, signal.SIGSTOP)
    _, ends = await asyncio.wait_for(collect(stuck), DEADLINE_S)
    assert ends["r-0"].finish_reason is FinishReason.FAILED
    await until(lambda: host_pid(client) not in (None, pid))


async def test_a_vllm_that_can_t_start_says_why_and_our_lanes_go_on(start, stand_in, make_request):
    stand_in.open_gate()
    client = await start(is_gate_open=False, vllm_arg=("extra=break",))
    await until(lambda: "can't run" in client.status.lanes["vllm"])
    assert "ValueError: no room for the KV cache" in client.status.lanes["vllm"]
    await until(lambda: client.status.is_ready)
    async with client.submit(make_request()) as generation:
        _, ends = await collect(generation)
    assert ends["r-0"].finish_reason is FinishReason.LENGTH


async def test_an_argument_that_vllm_doesn_t_have_is_named(start, stand_in):
    stand_in.open_gate()
    client = await start(is_gate_open=False, runner="vllm", vllm_arg=("enforce_eagre=true",))
    with pytest.raises(EngineFailed, match="enforce_eagre"):
        await asyncio.wait_for(client.wait_ready(), DEADLINE_S)


async def test_with_vllm_for_everything_readiness_is_vllm_s(start, stand_in, make_request):
    client = await start(is_gate_open=False, runner="vllm", vllm_arg=("max_num_seqs=7",))
    assert not client.status.is_ready
    assert "vLLM is starting" in client.status.reason
    assert client.policies == ("vllm",)
    stand_in.open_gate()
    info = await asyncio.wait_for(client.wait_ready(), DEADLINE_S)
    assert (info.runner, info.precision, info.seats) == ("vllm", "f32", {"vllm": 7})
    assert client.lane(None, "static") == "vllm"


@pytest.mark.parametrize("is_ready", [True, False], ids=["ready", "starting"])
async def test_no_process_is_left_after_close(start, is_ready):
    client = await start(is_gate_open=is_ready)
    await until(lambda: host_pid(client) is not None)
    processes = group_of(host_pid(client))
    await client.close()
    await until(lambda: are_gone(processes))


def test_nothing_is_left_of_vllm_where_our_process_was_killed(make_settings, stand_in, tmp_path):
    stand_in.open_gate()
    settings = make_settings(runner="vllm", vllm_python=stand_in.python).model_dump_json(exclude_unset=True)
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent(f"""
        import asyncio, os, signal
        import psutil
        from everystep.config import Settings
        from everystep.engine.client import EngineClient

        async def main():
            client = EngineClient(Settings.model_validate_json({settings!r}))
            await client.start()
            await client.wait_ready()
            print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            asyncio.run(main())
        """)
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(Path(everystep.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3, "the host, its reaper, vLLM's engine"
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    psutil.wait_procs(processes, timeout=1)
    assert are_gone(processes)
