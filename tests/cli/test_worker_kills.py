"""A real server whose worker is killed under load: nobody is left hanging, and it serves again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from cli.kill_load import KINDS, Load, ask, balance, flags, until_ready, workers_of
from cli.served import DEADLINE_S, serving

MOST_GROWTH_BYTES = 24 * 2**20


async def kill_under_load(url: str, server_pid: int, fatal: signal.Signals, num_each: int) -> float:
    """One kill among requests of every kind.  Seconds from the kill to readiness."""
    (worker,) = workers_of(server_pid)
    load = Load(url, num_each)
    await load.steps(5)
    os.kill(worker.pid, signal.SIGSTOP)  # its passes are so short that nobody may be there when a signal comes
    await load.somebody_is_open()
    num_before, killed_s = len(load.outcomes), time.monotonic()
    os.kill(worker.pid, fatal)
    reasons: list[str] = []
    while not reasons:
        reasons += await until_ready(load.client)
    ready_s = time.monotonic() - killed_s
    assert all(reason.startswith(("the worker is restarting", "the worker is stuck")) for reason in reasons)
    assert any("restarting" in reason for reason in reasons)
    outcomes = await load.end()
    assert all(outcome.num_ends == 1 for outcome in outcomes)
    ends = {(outcome.status, outcome.end) for outcome in outcomes}
    failed = [outcome for outcome in outcomes[num_before:] if outcome.end == "engine_failed"]
    assert failed, "whoever was open fails with the worker"
    assert ends <= {(200, "served"), (500, "engine_failed"), (200, "engine_failed"), (503, "engine_unavailable")}
    for kind in KINDS:
        assert (await ask(load.client, kind)).end == "served"
    found = await balance(load.client)
    assert found["accepted"] == found["ended"]
    assert found["running"] == found["waiting"] == 0
    assert not psutil.pid_exists(worker.pid)
    await load.client.aclose()
    return ready_s


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_killed_or_stopped_among_all_kinds_of_requests_costs_each_one_end_and_is_replaced(
    fatal: signal.Signals, tmp_path: Path
) -> None:
    with serving(tmp_path, *flags(), "--stall-timeout", "2") as server:
        await kill_under_load(server.url, server.process.pid, fatal, num_each=1)
        (worker,) = server.children = workers_of(server.process.pid)
        steps = server.client.get("/steps", params={"limit": 1000}).json()["steps"]
        numbers = [step["step"] for step in steps]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "step numbers go on"
        server.process.terminate()
        status, said = server.end()
    assert status == 0
    assert "the worker ended (1 of 6 in a row): " in said
    assert ("was ended by SIGKILL" in said) == (fatal is signal.SIGKILL)
    assert ("ending it" in said) == (fatal is signal.SIGSTOP)
    assert not worker.is_running()


@pytest.mark.slow
async def test_a_real_model_s_worker_killed_under_load_is_replaced_as_well(tmp_path: Path) -> None:
    with serving(tmp_path, *flags(), "--runner", "openvino", "--precision", "int8") as server:
        await kill_under_load(server.url, server.process.pid, signal.SIGKILL, num_each=1)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_twenty_kills_leave_no_descriptor_no_process_and_no_memory(tmp_path: Path) -> None:
    with serving(tmp_path, *flags()) as server:
        api = psutil.Process(server.process.pid)
        await kill_under_load(server.url, api.pid, signal.SIGKILL, num_each=1)
        before = (api.num_fds(), len(api.children(recursive=True)), api.num_threads())
        memory_bytes = api.memory_info().rss
        for _ in range(20):
            await kill_under_load(server.url, api.pid, signal.SIGKILL, num_each=1)
        with httpx.Client(base_url=server.url, timeout=DEADLINE_S) as client:
            assert client.get("/health/ready").status_code == 200
        fds, children, threads = api.num_fds(), len(api.children(recursive=True)), api.num_threads()
        assert (children, threads) == before[1:]
        assert fds <= before[0] + 4, "a connection of ours may not have been closed yet"
        assert api.memory_info().rss - memory_bytes < MOST_GROWTH_BYTES
