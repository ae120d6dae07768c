"""Engines come and go in one process, in any order, and Ctrl-C stays Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.served import TINY, environment

SCRIPT = """
import gc, signal, sys
from everystep import LLM

model, cache_dir, order = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)

def make():
    llm = LLM(model, runner="openvino", cache_dir=cache_dir, kv_cache_gib=0.001, threads=1)
    llm.generate("the")
    return llm

made = {name: make() for name in "ab"}
for name in order:
    made.pop(name).close()
    gc.collect()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_ctrl_c_after_engines_have_come_and_gone_is_an_exception_and_no_crash(order: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(TINY), str(tmp_path), order]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path), timeout=100)
    assert (done.returncode, done.stdout) == (0, "interrupted\n" * 2), done.stderr
