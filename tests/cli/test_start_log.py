"""What a server says of its start: how many threads compute, and where the seconds went."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.served import serving

REAL = ["--runner", "openvino", "--precision", "f32"]
PARTS = r"ready ([\d.]+) s after the process began; the worker's part: (.*)"


@contextmanager
def bound_to_one_cpu() -> Iterator[None]:
    """Processes started meanwhile inherit it."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to a CPU")
def test_a_real_server_bound_to_one_cpu_computes_with_one_thread_and_says_where_its_start_went(
    tmp_path: Path,
) -> None:
    with bound_to_one_cpu(), serving(tmp_path, *REAL) as server:
        reply = server.client.post("/basic_generate", json={"prompt": "a", "max_tokens": 2})
        assert reply.status_code == 200
        server.process.terminate()
        status, said = server.end()
    assert status == 0
    assert re.search(r": openvino f32, 1 threads,", said), said
    found = re.search(PARTS, said)
    assert found is not None, said
    parts = {name.strip(): float(took) for name, took in re.findall(r"([a-z ]+) ([\d.]+) s", found[2])}
    assert len(parts) >= 4, "each part has a name and its seconds"
    assert sum(parts.values()) <= float(found[1]) + 0.01 * len(parts), "parts of the whole, each counted once"
