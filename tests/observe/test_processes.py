"""The processes' figures are those that the system has of them; one that is gone is left out."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from everystep.observe.processes import Processes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


def registry_of(**pids: int | None) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Processes(pids))
    return registry


def test_two_processes_are_told_apart_and_agree_with_what_psutil_reads() -> None:
    sleeping = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        told = registry_of(server=os.getpid(), worker=sleeping.pid)
        for process, pid in (("server", os.getpid()), ("worker", sleeping.pid)):
            started = told.get_sample_value("everystep_process_start_time_seconds", {"process": process})
            assert started == pytest.approx(psutil.Process(pid).create_time(), abs=2)
        resident = told.get_sample_value("everystep_process_resident_memory_bytes", {"process": "server"})
        assert resident == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
        assert told.get_sample_value("everystep_process_cpu_seconds_total", {"process": "server"}) > 0
    finally:
        sleeping.communicate()


def test_a_process_that_is_gone_or_that_there_is_not_is_left_out() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    text = generate_latest(registry_of(server=os.getpid(), worker=gone.pid, other=None)).decode()
    assert 'process="server"' in text
    assert "worker" not in text
    assert "other" not in text


def test_one_process_that_does_two_things_is_told_of_once() -> None:
    text = generate_latest(registry_of(server=os.getpid(), worker=os.getpid())).decode()
    assert 'process="server"' in text
    assert "worker" not in text


def test_nothing_is_said_where_there_is_no_process() -> None:
    assert generate_latest(registry_of(worker=None)) == b""
