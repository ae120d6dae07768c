"""A real worker process: killed, stopped, misconfigured, orphaned."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import everystep
from engine import compiling_worker
from everystep.engine import worker
from everystep.engine.client import EngineClient
from everystep.engine.client.supervisor import Phase
from everystep.engine.handle import WorkerProcess
from everystep.errors import EngineFailed
from everystep.runner.fake import generate
from everystep.types import FinishReason

DEADLINE_S = 60.0


@pytest.fixture
async def client(make_settings):
    client = EngineClient(make_settings(drain_timeout=0.0, stall_timeout=2.0, max_model_len=512))
    await client.start()
    await asyncio.wait_for(ready(client), DEADLINE_S)
    yield client
    await client.close()


async def ready(client):
    while not client.status.is_ready:
        await asyncio.sleep(0.01)


async def next_worker(client, old_pid):
    while client.worker_pid in (None, old_pid) or not client.status.is_ready:
        await asyncio.sleep(0.01)


async def ends_of(generation):
    return [delta async for delta in generation if delta.finish_reason is not None]


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_dies_or_stalls_fails_all_that_was_open_and_the_next_request_works(
    client, make_request, fatal
):
    pid = client.worker_pid
    requests = [
        client.submit(make_request(*[(i, i + 1)] * 8, request_id=f"q{i}", max_tokens=500, policy=policy))
        for i, policy in enumerate(("static", "per_token", "continuous"), start=1)
    ]
    await client.wait_for_step(3)
    os.kill(pid, fatal)
    for request in requests:
        ends = await asyncio.wait_for(ends_of(request), DEADLINE_S)
        assert sorted(end.sequence_id for end in ends) == sorted(request.sequence_ids)
        failed = [end for end in ends if end.finish_reason is FinishReason.FAILED]
        assert all(isinstance(end.failure, EngineFailed) for end in failed)
        assert failed, "the kill came too late to show anything"
    assert not client.status.is_ready
    await asyncio.wait_for(next_worker(client, pid), DEADLINE_S)
    step_before = client._last_step
    async with client.submit(make_request(request_id="after")) as after:
        tokens = [token.token_id async for delta in after for token in delta.tokens]
    assert tokens == generate((1, 2, 3), 8, client.tokenizer.vocab_size)
    assert client._last_step > step_before
    assert not psutil.pid_exists(pid)


async def test_settings_that_no_worker_can_start_with_are_said_once_and_not_retried(make_settings):
    client = EngineClient(make_settings(kv_cache_gib=1e-9))
    await client.start()
    with pytest.raises(EngineFailed, match="kv_cache_gib"):
        await asyncio.wait_for(client.wait_ready(), DEADLINE_S)
    assert client._backends.first.phase is Phase.FAILED
    assert not client.status.is_live
    await client.close()


async def test_no_worker_is_left_after_close(client):
    worker = psutil.Process(client.worker_pid)
    await client.close()
    assert not worker.is_running()


def test_a_worker_whose_parent_was_killed_ends_by_itself(make_settings, tmp_path):
    settings = make_settings().model_dump_json()
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent(f"""
        import asyncio, os, signal
        from everystep.config import Settings
        from everystep.engine.client import EngineClient

        async def main():
            client = EngineClient(Settings.model_validate_json({settings!r}))
            await client.start()
            await client.wait_ready()
            print(client.worker_pid, flush=True)
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
    pid = int(done.stdout)
    if psutil.pid_exists(pid):
        psutil.Process(pid).wait(timeout=DEADLINE_S)


async def test_a_worker_that_compiles_in_the_background_leaves_when_asked(make_settings, monkeypatch):
    monkeypatch.setattr(worker, "main", compiling_worker.main)
    handles = []
    client = EngineClient(make_settings(), spawn=lambda args: handles.append(WorkerProcess(args)) or handles[-1])
    await client.start()
    await asyncio.wait_for(ready(client), DEADLINE_S)
    await client.close()
    (handle,) = handles
    assert handle.explain("") == "it exited with 0", "it left by itself"
