"""The rules of the house as a checker: source text in, complaints out.

Owns the floors table and the bans of the design.  Ignorant of pytest and of where the sources lie.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

PACKAGE = "everystep"
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
BANNED_NAMES = ("utils", "util", "helpers", "helper", "common", "misc")

# A room is a file or a folder directly in the package.  "" is the package's own __init__.
FLOORS = {
    "types": 0, "errors": 0, "api_keys": 0, "config": 0, "settings_sources": 0, "messages": 0,
    "sampling_params": 0, "architecture": 0, "version": 0,
    "sched": 1, "runner": 1, "text": 1, "observe": 1, "checkpoint": 1,
    "engine": 2, "analysis": 2,
    "api": 3, "bench": 3, "top": 3,
    "": 4, "__main__": 4, "cli": 4, "cli_bench": 4, "cli_models": 4, "cli_simulate": 4, "cli_plan": 4, "cli_replay": 4,
    "cli_top": 4,
    "flags": 4, "interrupts": 4, "progress": 4, "serve": 4, "http_server": 4, "http_protocol": 4,
    "http_framing": 4, "http_deadlines": 4, "http_replies": 4, "http_limits": 4, "http_unframed": 4,
    "http_connections": 4, "http_heads": 4, "exposure": 4,
    "llm": 4, "schedule_replay": 4,
    "deploy": 4,
}  # fmt: skip
FOLDERS = {"sched", "runner", "text", "observe", "checkpoint", "engine", "analysis", "api", "bench", "top", "deploy"}
TOP_FLOOR = 4

# Pairs that floors alone would allow.
NEVER = {("analysis", "runner"), ("analysis", "engine"), ("bench", "engine"), ("top", "engine"), ("top", "observe")}

# Library → rooms that may import it.
LIBRARIES = {
    "openvino": {"runner"},
    "torch": {"runner"},
    "transformers": {"runner"},
    "vllm": {"engine"},
    "gguf": {"checkpoint"},
    "tokenizers": {"text"},
    "jinja2": {"text"},
    "huggingface_hub": {"checkpoint"},
    "fastapi": {"api", "deploy"},
    "starlette": {"api", "deploy"},
    "sse_starlette": {"api", "deploy"},
    "uvicorn": {"http_server", "http_protocol", "http_unframed", "bench", "deploy"},
    "click": {"cli", "cli_bench", "cli_models", "cli_simulate", "cli_plan", "cli_replay", "cli_top", "flags"},
    "httpx": {"bench", "engine", "top"},
    "rich": {"bench", "progress", "top", "cli_top"},
    "opentelemetry": {"api"},
    "scipy": {"analysis"},
    "matplotlib": {"bench"},
}
FOREIGN = {"everystep/bench/peers/genai_worker.py"}  # run by another Python, on that Python's libraries
CLOCK_ROOMS = {"engine", "bench", "top"}  # and floor 4
ASYNC_ROOMS = {"api", "bench"}  # and floor 4, and engine/client and engine/vllm
ASYNC_IN_ENGINE = ("client", "vllm")
CLOCK_METHODS = {"now", "utcnow", "today"}
CLOCK_FUNCTIONS = {
    f"{name}{suffix}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime", "sleep")
    for suffix in ("", "_ns")
}
CLOCK_WITHOUT = {"time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.strftime": 2}  # fewer arguments: now
SEEDED_RANDOM = {"Random", "SystemRandom"}
SEEDED_NUMPY_RANDOM = {"Generator", "default_rng", "Philox", "PCG64", "SeedSequence", "BitGenerator"}


@dataclass(frozen=True)
class Module:
    """One source file, by its path under ``src/``, such as ``everystep/sched/static.py``."""

    path: str
    source: str

    @property
    def parts(self) -> tuple[str, ...]:
        """Dotted name within the package, such as ``("sched", "static")``; ``()`` is the package itself."""
        names = self.path.removesuffix(".py").split("/")[1:]
        return tuple(names[:-1] if names[-1] == "__init__" else names)

    @property
    def room(self) -> str:
        return self.parts[0] if self.parts else ""

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)


def complaints(module: Module) -> list[str]:
    """Everything in one file that the house doesn't allow, one line each; empty is good."""
    found: list[str] = []
    for check in (_names, _size, _docstring, _imports, _libraries, _clocks, _randomness, _quiet_import):
        found += [f"{module.path}: {words}" for words in check(module)]
    return found


# --- shape ---------------------------------------------------------------------------------------
def _names(module: Module) -> Iterator[str]:
    if module.room not in FLOORS:
        yield f"room {module.room!r} has no floor: add it to FLOORS"
    for part in module.parts:
        if part in BANNED_NAMES:
            yield f"{part!r} names no subject"


def _size(module: Module) -> Iterator[str]:
    num_lines = len(module.source.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{num_lines} lines, at most {MAX_FILE_LINES}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"line {node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def _docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "no module docstring"


def _quiet_import(module: Module) -> Iterator[str]:
    """Nothing happens at import: no bare call, no loop in a module's body."""
    for node in module.tree.body:
        is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
        if is_call or isinstance(node, ast.For | ast.While | ast.With):
            yield f"line {node.lineno}: something happens at import"


# --- imports -------------------------------------------------------------------------------------
def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, those inside functions and ``TYPE_CHECKING`` included.

    ``from a.b import c`` counts as both ``a.b`` and ``a.b.c``, since ``c`` may be a module.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    folder = [PACKAGE, *module.parts]
    if not module.path.endswith("__init__.py"):
        folder = folder[:-1]
    folder = folder[: len(folder) - (node.level - 1)]
    return ".".join([*folder, node.module] if node.module else folder)


def _imports(module: Module) -> Iterator[str]:
    """Strictly lower floors, or one's own folder; files directly in the package share that folder."""
    here = FLOORS.get(module.room, TOP_FLOOR)
    for line, name in sorted(set(imported(module))):
        if name == PACKAGE and module.room != "":
            yield f"line {line}: imports the package's front door instead of a room"
        if not name.startswith(f"{PACKAGE}."):
            continue
        room = name.split(".")[1]
        if room == module.room or (module.room == "" and room not in FLOORS):
            continue
        if room not in FLOORS:
            yield from (
                () if name.count(".") == 1 and room.startswith("__") else (f"line {line}: unknown room {room!r}",)
            )
        elif (module.room, room) in NEVER:
            yield f"line {line}: {module.room} never imports {room}"
        elif not _may_import(module.room, here, room):
            yield f"line {line}: floor {here} ({module.room or PACKAGE}) imports floor {FLOORS[room]} ({room})"


def _may_import(importer: str, floor: int, room: str) -> bool:
    shares_folder = importer not in FOLDERS and room not in FOLDERS
    return FLOORS[room] < floor or (FLOORS[room] == floor and shares_folder)


def _libraries(module: Module) -> Iterator[str]:
    for line, name in sorted(set(imported(module))):
        library = name.split(".")[0]
        is_free = module.path in FOREIGN or module.room in LIBRARIES.get(library, {module.room})
        if not is_free:
            yield f"line {line}: {library} is imported outside {', '.join(sorted(LIBRARIES[library]))}"
        if library == "asyncio" and not _may_use_asyncio(module):
            yield f"line {line}: asyncio is imported outside engine/client and /vllm, api, bench and floor {TOP_FLOOR}"


def _may_use_asyncio(module: Module) -> bool:
    in_engine = module.room == "engine" and len(module.parts) > 1 and module.parts[1].startswith(ASYNC_IN_ENGINE)
    return in_engine or module.room in ASYNC_ROOMS or FLOORS.get(module.room) == TOP_FLOOR


# --- time and chance -----------------------------------------------------------------------------
def _clocks(module: Module) -> Iterator[str]:
    if module.room in CLOCK_ROOMS or FLOORS.get(module.room) == TOP_FLOOR:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            for alias in node.names:
                if alias.name in CLOCK_FUNCTIONS:
                    yield f"line {node.lineno}: reads a clock: time.{alias.name}"
        elif _is_clock(node):
            yield f"line {node.lineno}: reads a clock: {ast.unparse(node)}"


def _is_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return len(node.args) < CLOCK_WITHOUT.get(ast.unparse(node.func), 0)
    if not isinstance(node, ast.Attribute):
        return False
    owner = ast.unparse(node.value)
    return (owner == "time" and node.attr in CLOCK_FUNCTIONS) or (
        node.attr in CLOCK_METHODS and owner.split(".")[-1] in ("datetime", "date")
    )


def _randomness(module: Module) -> Iterator[str]:
    """Chance is passed in: no global generator, and none that seeds itself."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
            allowed = SEEDED_RANDOM if node.module == "random" else SEEDED_NUMPY_RANDOM
            for alias in node.names:
                if alias.name not in allowed:
                    yield f"line {node.lineno}: global randomness: {node.module}.{alias.name}"
        if isinstance(node, ast.Call):
            yield from _random_call(module, node)


def _random_call(module: Module, node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    if name.startswith("random.") and all(imported_name != "random" for _, imported_name in imported(module)):
        return  # a variable of that name
    owner, _, function = name.rpartition(".")
    is_global = (owner == "random" and function not in SEEDED_RANDOM) or (
        owner in ("np.random", "numpy.random") and function not in SEEDED_NUMPY_RANDOM
    )
    if is_global:
        yield f"line {node.lineno}: global randomness: {name}"
    elif function in ("Random", "default_rng") and not (node.args or node.keywords):
        yield f"line {node.lineno}: {name}() seeds itself"
