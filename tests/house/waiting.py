"""What an event loop may not do, read from the source: block, or wait without an end that somebody has justified.

Owns the reading of ``async def``.  A call is followed into the package's own plain functions, for those run on the loop
too; what is handed to ``asyncio.to_thread`` isn't called there, and so isn't followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Names of calls that wait for a disk, a process, a thread, a clock or the network, or compute for long.
BLOCKING = {
    "open", "input", "time.sleep", "os.system", "os.popen", "os.wait", "os.waitpid", "os.fsync", "select.select",
    "socket.create_connection", "socket.getaddrinfo", "socket.gethostbyname", "urllib.request.urlopen", "urlopen",
}  # fmt: skip
BLOCKING_MODULES = ("subprocess", "requests", "shutil", "httpx", "tempfile", "pickle", "zipfile")
NOT_BLOCKING = {"httpx.AsyncClient", "httpx.Timeout", "httpx.Limits", "subprocess.DEVNULL"}  # made, not run
BLOCKING_METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "recv", "sendall", "accept", "communicate", "glob", "rglob",
    "encode_prompt", "encode_chat", "encode_batch", "open_checkpoint",
}  # fmt: skip
WITH_AN_END = {"asyncio.wait_for", "asyncio.sleep", "asyncio.timeout"}


@dataclass
class Source:
    """One module: its functions by name, methods by class and name, and what its imports mean."""

    path: str
    text: str
    functions: dict[str, Function] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # local name → (module, name there)

    def __post_init__(self) -> None:
        tree = ast.parse(self.text, self.path)
        for scope, node in _defined(tree, ""):
            self.functions[f"{scope}{node.name}"] = node
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)

    @property
    def dotted(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _defined(node: ast.AST, scope: str) -> Iterator[tuple[str, Function]]:
    """Every function with the names around it: ``Class.``, ``outer.``; nothing for a module's own."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield scope, child
            yield from _defined(child, f"{scope}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _defined(child, f"{scope}{child.name}.")
        else:
            yield from _defined(child, scope)


# --- what blocks ---------------------------------------------------------------------------------
def blocking_calls(paths: Iterator[str] | list[str], sources: Mapping[str, Source]) -> list[str]:
    """One line for each blocking call that an ``async def`` of these files makes, itself or through plain functions."""
    found: list[str] = []
    by_module = {source.dotted: source for source in sources.values()}
    for path in paths:
        source = sources[path]
        for name, function in source.functions.items():
            if isinstance(function, ast.AsyncFunctionDef):
                found += _blocking(source, name, by_module, (name,), set())
    return found


def _blocking(
    source: Source, name: str, modules: Mapping[str, Source], trail: tuple[str, ...], seen: set[tuple[str, str]]
) -> Iterator[str]:
    if (source.path, name) in seen:
        return
    seen.add((source.path, name))
    for call in _own_calls(source.functions[name]):
        if is_blocking(call):
            yield f"{source.path}: {' → '.join(trail)}: line {call.lineno}: {ast.unparse(call)[:80]}"
        elif (callee := _callee(source, name, call, modules)) is not None:
            there, inner = callee
            if isinstance(there.functions[inner], ast.FunctionDef):
                yield from _blocking(there, inner, modules, (*trail, inner), seen)


def is_blocking(call: ast.Call) -> bool:
    """By its name alone; an awaited call gives the loop back, and isn't asked about."""
    name = ast.unparse(call.func)
    is_named = name in BLOCKING or (name.split(".")[0] in BLOCKING_MODULES and name not in NOT_BLOCKING)
    return is_named or (isinstance(call.func, ast.Attribute) and call.func.attr in BLOCKING_METHODS)


def _own_calls(function: Function) -> Iterator[ast.Call]:
    """Calls of the body, those of functions and lambdas defined within left out: who calls them is seen where it is."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            stack += [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
            continue  # an awaited call gives the loop back
        if isinstance(node, ast.Call):
            yield node
        stack += ast.iter_child_nodes(node)


def _callee(source: Source, caller: str, call: ast.Call, modules: Mapping[str, Source]) -> tuple[Source, str] | None:
    """Where the called function stands, if it is one of the package's that a name leads to."""
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
        return _found(source, f"{caller.partition('.')[0]}.{func.attr}")
    if not isinstance(func, ast.Name):
        return None
    scope = caller
    while scope:
        inner = _found(source, f"{scope}.{func.id}")
        if inner is not None and scope in source.functions:  # a class's methods aren't seen by their bare names
            return inner
        scope = scope.rpartition(".")[0]
    if func.id in source.functions:
        return source, func.id
    module, name = source.imports.get(func.id, ("", ""))
    return _found(modules[module], name) if module in modules else None


def _found(source: Source, name: str) -> tuple[Source, str] | None:
    return (source, name) if name in source.functions else None


# --- what waits ----------------------------------------------------------------------------------
def open_ended_waits(source: Source, own_async: set[str]) -> Iterator[str]:
    """Each wait of the file that has no deadline of its own, as written; a call of our own coroutine isn't one.

    ``own_async`` are the names of the package's coroutine functions: what they wait for stands in their own bodies.
    """
    for node in ast.walk(ast.parse(source.text)):
        for awaited in _awaited(node):
            if not _has_an_end(awaited) and not _is_own(awaited, own_async):
                yield ast.unparse(awaited)


def _awaited(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Await):
        return [node.value]
    if isinstance(node, ast.AsyncWith):
        return [item.context_expr for item in node.items]
    if isinstance(node, ast.AsyncFor):
        return [node.iter]
    return [cast(ast.expr, node.iter)] if isinstance(node, ast.comprehension) and node.is_async else []


def _has_an_end(awaited: ast.expr) -> bool:
    if not isinstance(awaited, ast.Call):
        return False
    return ast.unparse(awaited.func) in WITH_AN_END or any(
        keyword.arg == "timeout" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
        for keyword in awaited.keywords
    )


def _is_own(awaited: ast.expr, own_async: set[str]) -> bool:
    if not isinstance(awaited, ast.Call):
        return False
    func = awaited.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in own_async
