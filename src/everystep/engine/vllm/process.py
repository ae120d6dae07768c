"""vLLM's process as our side holds it: started in its environment, heard, and ended with all that it started.

Owns the spawn, the environment variables, and what vLLM prints.  Ignorant of messages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, MutableSequence, Sequence
from pathlib import Path

import msgspec

from everystep.engine import heartbeat
from everystep.engine.handle import SOCKET_BUFFER_BYTES
from everystep.engine.vllm.group import end_group
from everystep.engine.vllm.host_args import HostArgs

logger = logging.getLogger(__name__)

# vLLM's environment has nothing of ours installed.  This makes our package importable there, and nothing else of the
# environment that we run in: a path entry would bring our libraries along.
LOADER = """
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
spec = ModuleSpec("everystep", None, is_package=True)
spec.submodule_search_locations = [sys.argv[1]]
sys.modules["everystep"] = module_from_spec(spec)
from everystep.engine.vllm.main import main
main(int(sys.argv[2]))
"""
PACKAGE = Path(__file__).parents[2]
KEPT_LINES = 200
ERROR_LINE = re.compile(r"\b((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .+)")
VAGUE = ("Engine core initialization failed", "WorkerProc initialization failed", "cancelled")
FIXED_VARIABLES = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would hold our socket open
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_COLOR": "0",
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",  # the folder that the server runs in is no place to import from
}
DROPPED_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "VLLM_CPU_KVCACHE_SPACE")


class VllmProcess:
    """A started host.  ``heartbeat`` is written by whoever reads its news."""

    def __init__(self, python: Path, args: HostArgs, cache_root: Path, cpus: Sequence[int]) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        self.heartbeat: MutableSequence[float] = [0.0] * heartbeat.SLOTS
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        with theirs:
            self._process = subprocess.Popen(
                [str(python), "-c", LOADER, str(PACKAGE), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=environment(os.environ, cache_root, cpus),
                start_new_session=True,  # a group of its own, so that all of vLLM can be ended at once
            )
        self._listener = threading.Thread(target=self._listen, name="everystep-vllm-output", daemon=True)
        self._listener.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already: its last lines say why
            self._process.stdin.write(msgspec.json.encode(args))
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the whole group: vLLM's engine and its workers are children of the host."""
        end_group(self._process.pid)

    def join(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self._listener.join(timeout_s)
        return self._process.returncode is not None

    def explain(self, words: str) -> str:
        """The host's last words, or the error that vLLM printed where they say less."""
        says_little = not words or any(part in words for part in VAGUE)
        return (printed_error(self._lines) or words or "the process ended") if says_little else words

    def _listen(self) -> None:
        """Everything vLLM prints, in our log at debug: its warnings are about itself."""
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self._lines.append(line)
            logger.debug("%s", line)


def clean_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """The user's variables, without ours and without what would lead another Python to our libraries."""
    return {
        name: value
        for name, value in ours.items()
        if not name.startswith("EVERYSTEP_") and name not in DROPPED_VARIABLES
    }


def environment(ours: Mapping[str, str], cache_root: Path, cpus: Sequence[int]) -> dict[str, str]:
    """vLLM's variables.  ``cpus`` are those that its threads are bound to on a CPU; without any, it chooses."""
    kept = clean_environment(ours)
    threads = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cpus))} if cpus else {}
    return {"VLLM_CACHE_ROOT": str(cache_root / "vllm"), **kept, **threads, **FIXED_VARIABLES}


def printed_error(lines: deque[str]) -> str:
    """The last line that names an exception and says something; empty where none does."""
    for line in reversed(lines):
        found = ERROR_LINE.search(line)
        if found and not any(part in found[1] for part in VAGUE):
            return found[1]
    return ""
