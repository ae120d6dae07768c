"""The house keeps its rules, and the checker of the rules can fail."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from house import floors

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"

MODULES = sorted(str(path.relative_to(SRC)) for path in SRC.rglob("*.py"))
DOC = '"""Owns something."""\n'


def complaints(path: str, source: str) -> list[str]:
    return floors.complaints(floors.Module(path, source))


@pytest.mark.parametrize("path", MODULES)
def test_the_module_keeps_the_rules_of_the_house(path: str) -> None:
    assert complaints(path, (SRC / path).read_text(encoding="utf-8")) == []


def test_the_package_was_found() -> None:
    assert "everystep/config.py" in MODULES
    assert len(MODULES) > 20


def test_every_folder_of_the_floors_table_is_told_from_a_file() -> None:
    rooms = {path.name for path in (SRC / "everystep").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= floors.FOLDERS


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("everystep/sched/static.py", "from everystep.engine import core", "floor 1 (sched) imports floor 2"),
        ("everystep/sched/static.py", "import everystep.runner.fake", "imports floor 1 (runner)"),
        ("everystep/sched/static.py", "from everystep import runner", "imports floor 1 (runner)"),
        ("everystep/sched/static.py", "from ..text import Tokenizer", "imports floor 1 (text)"),
        ("everystep/sched/__init__.py", "from ..text import Tokenizer", "imports floor 1 (text)"),
        ("everystep/sched/static.py", "def f():\n    from everystep.api import create_app", "imports floor 3 (api)"),
        ("everystep/types.py", "from everystep.sched import BlockPool", "floor 0 (types) imports floor 1"),
        ("everystep/engine/core.py", "from everystep import LLM", "front door"),
        ("everystep/analysis/replay.py", "from everystep.runner import fake", "analysis never imports runner"),
        ("everystep/analysis/replay.py", "from everystep.engine import core", "analysis never imports engine"),
        ("everystep/bench/load.py", "from everystep.engine import core", "bench never imports engine"),
        ("everystep/bench/load.py", "from everystep.api import create_app", "floor 3 (bench) imports floor 3 (api)"),
        ("everystep/top/run.py", "from everystep.engine import core", "top never imports engine"),
        ("everystep/top/run.py", "from everystep.api import create_app", "floor 3 (top) imports floor 3 (api)"),
        ("everystep/deploy/ray.py", "from everystep.llm import LLM", "floor 4 (deploy) imports floor 4 (llm)"),
        ("everystep/engine/core.py", "import openvino as ov", "openvino is imported outside runner"),
        ("everystep/checkpoint/hf.py", "from torch.nn import Linear", "torch is imported outside runner"),
        ("everystep/engine/core.py", "from fastapi import FastAPI", "fastapi is imported outside api"),
        ("everystep/engine/core.py", "import asyncio", "asyncio is imported outside"),
        ("everystep/observe/metrics.py", "import time\nf = time.monotonic", "reads a clock: time.monotonic"),
        ("everystep/sched/static.py", "from time import monotonic", "reads a clock"),
        ("everystep/observe/log.py", "import time\nX = time.strftime('%H')", "reads a clock"),
        ("everystep/observe/log.py", "import datetime\nX = datetime.datetime.now()", "reads a clock"),
        ("everystep/sched/static.py", "import random\nX = random.random()", "global randomness: random.random"),
        ("everystep/sched/static.py", "from random import choice", "global randomness: random.choice"),
        ("everystep/runner/draw.py", "import numpy as np\nX = np.random.rand(3)", "global randomness: np.random.rand"),
        ("everystep/runner/draw.py", "import numpy as np\nX = np.random.default_rng()", "seeds itself"),
        ("everystep/engine/ids.py", "import random\nX = random.Random()", "seeds itself"),
        ("everystep/sched/utils.py", "", "'utils' names no subject"),
        ("everystep/common/thing.py", "", "'common' names no subject"),
        ("everystep/attic/thing.py", "", "room 'attic' has no floor"),
        ("everystep/sched/static.py", "print('hello')", "something happens at import"),
        ("everystep/sched/static.py", "for x in (1, 2):\n    y = x", "something happens at import"),
        ("everystep/sched/static.py", "x = 1\n" * 300, "301 lines, at most 300"),
        ("everystep/sched/static.py", "def f():\n" + "    x = 1\n" * 40, "f has 41 lines, at most 40"),
    ],
)  # fmt: skip
def test_the_checker_complains_of_what_is_forbidden(path: str, line: str, words: str) -> None:
    found = complaints(path, DOC + line)
    assert any(words in complaint for complaint in found), found


def test_a_module_without_a_docstring_is_complained_of() -> None:
    assert complaints("everystep/sched/static.py", "x = 1\n") == ["everystep/sched/static.py: no module docstring"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("everystep/sched/static.py", "from everystep.types import StepPlan\nfrom everystep.sched.lane import Lane"),
        ("everystep/types.py", "from everystep.sampling_params import SamplingParams"),
        ("everystep/engine/core.py", "import time\nimport random\nX = random.Random(3)"),
        ("everystep/engine/client/__init__.py", "import asyncio"),
        ("everystep/observe/log.py", "import time\nX = time.strftime('%H', time.gmtime(3.0))"),
        ("everystep/runner/draw.py", "random = []\ndef f():\n    random.append(1)"),
        ("everystep/cli.py", "import asyncio, time\nfrom everystep.llm import LLM"),
        ("everystep/runner/draw.py", "import openvino\nfrom numpy.random import Philox\nX = Philox(3)"),
        ("everystep/api/app.py", "import asyncio\nfrom fastapi import FastAPI\nfrom everystep.engine import client"),
        ("everystep/sched/static.py", "x = 1\n" * 299),
        ("everystep/sched/static.py", "def f():\n" + "    x = 1\n" * 39),
        ("everystep/api/app.py", "from everystep.version import __version__"),
    ],
)  # fmt: skip
def test_the_checker_is_silent_about_what_is_allowed(path: str, line: str) -> None:
    assert complaints(path, DOC + line) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    """Only imports that run at import count: a circle among them depends on who comes first."""
    graph = {_dotted(path): _runs_at_import(path) for path in MODULES}
    done: set[str] = set()
    for start in graph:
        _walk(start, graph, (), done)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _runs_at_import(path: str) -> set[str]:
    """Modules that the module's body imports; ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
    source = (SRC / path).read_text(encoding="utf-8")
    body = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for _, name in floors.imported(floors.Module(path, "\n".join(map(ast.unparse, body))))}
    modules = names & {_dotted(path) for path in MODULES}
    return {name for name in modules if not any(other.startswith(f"{name}.") for other in modules)} - {_dotted(path)}


def _walk(name: str, graph: dict[str, set[str]], trail: tuple[str, ...], done: set[str]) -> None:
    assert name not in trail, " → ".join([*trail, name])
    if name in done or name not in graph:
        return
    for other in sorted(graph[name]):
        _walk(other, graph, (*trail, name), done)
    done.add(name)
