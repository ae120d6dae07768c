"""The table of faults names all thirty kinds, and each test and file that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "everystep"
PAPER = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
NUM_KINDS = 30
ONLY_WITH_ALL = {"torch", "slow", "vllm", "gpu"}  # marks that `make test` leaves out

# Number, and what stands below its heading up to the next one.
SECTIONS = {
    int(found[1]): found[2] for found in re.finditer(r"^### (\d+) · .+\n((?:(?!^##).*\n)*)", PAPER, re.MULTILINE)
}
LINES = [
    (number, found[1] is not None, found[2], found[3])
    for number, text in SECTIONS.items()
    for found in re.finditer(r"^- (\*all\*: )?`(tests/[\w/]+\.py)::(\w+)`$", text, re.MULTILINE)
]


@cache
def found_in(path: str) -> dict[str, set[str]]:
    """A file's tests with the marks that each bears, its module's included; classes' methods count too."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"), path)
    of_module = {
        mark
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in marks(node.value)
    }
    return {
        node.name: of_module | {mark for decorator in node.decorator_list for mark in marks(decorator)}
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def marks(node: ast.AST) -> set[str]:
    return set(re.findall(r"pytest\.mark\.(\w+)", ast.unparse(node)))


def test_all_kinds_are_here_in_order() -> None:
    assert list(SECTIONS) == list(range(1, NUM_KINDS + 1))


@pytest.mark.parametrize("number", range(1, NUM_KINDS + 1))
def test_each_kind_has_a_test_that_runs_by_default_and_says_where_its_mechanism_stands(number: int) -> None:
    assert any(kind == number and not is_for_all for kind, is_for_all, _, _ in LINES)
    words = SECTIONS[number].partition("\n- ")[0]
    assert re.search(r"`[\w/]+\.py`", words), "no file is named"


@pytest.mark.parametrize(("number", "is_for_all", "path", "name"), LINES)
def test_the_test_is_there_and_runs_where_it_is_said_to(number: int, is_for_all: bool, path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"fault {number} names a file that is gone"
    assert name in found_in(path), f"fault {number} names a test that is gone"
    assert is_for_all == bool(found_in(path)[name] & ONLY_WITH_ALL), "say *all* of a test that make test leaves out"


def test_every_line_of_a_list_was_understood() -> None:
    lists = [line for text in SECTIONS.values() for line in text.splitlines() if line.startswith("- ")]
    assert len(lists) == len(LINES)


def test_no_kind_names_a_test_twice() -> None:
    assert len({(number, path, name) for number, _, path, name in LINES}) == len(LINES)


def test_the_files_of_mechanisms_are_there() -> None:
    named = {path for text in SECTIONS.values() for path in re.findall(r"`((?:\w+/)*\w+\.py)`", text)}
    assert len(named) > NUM_KINDS
    missing = {path for path in named if not (PACKAGE / path).is_file() and not (ROOT / path).is_file()}
    assert missing == set()
