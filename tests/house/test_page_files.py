"""The page's files keep the rules of the house, the checker of them can fail, and the vendored ones are unchanged."""

from __future__ import annotations

import hashlib
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from everystep.api.page.bundle import bundle
from house import scripts

ROOT = Path(__file__).parents[2]
API = ROOT / "src" / "everystep" / "api"
PAGE, VENDOR = API / "page", API / "page" / "vendor"
SCRIPTS = sorted(path for room in (PAGE, API / "docs_page") for path in room.glob("*.js"))
SHEETS = sorted(path for room in (PAGE, API / "docs_page") for path in room.glob("*.css"))


def script_of(path: Path) -> scripts.Script:
    return scripts.Script(path.name, path.read_text(encoding="utf-8"))


def complaints(source: str) -> str:
    return "\n".join(scripts.complaints(scripts.Script("one.js", "// Owns it.\n" + source)))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_script_keeps_the_rules_of_the_house(path: Path) -> None:
    assert scripts.complaints(script_of(path)) == []


def test_the_scripts_were_found_and_their_words() -> None:
    assert len(SCRIPTS) > 20
    found = [table for path in SCRIPTS for table in scripts.tables(script_of(path))]
    assert len(found) == sum(path.read_text(encoding="utf-8").count(" = translator({") for path in SCRIPTS) > 8
    line = next(table for table in found if table.name == "lineWords")
    assert {"round_running", "no_seat", "no_blocks", "no_budget", "behind"} <= line.languages["ko"].keys()
    assert line.languages["en"]["no_budget"] == '"the token budget of this step is spent"'


def test_every_script_is_part_of_the_page() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    assert set(re.findall(r"^// --- (\w+)\.js$", bundle(sources, "main"), re.MULTILINE)) == set(sources)


@pytest.mark.parametrize("path", [*SHEETS, PAGE / "index.html"], ids=lambda path: path.name)
def test_sheets_and_frame_name_no_other_host(path: Path) -> None:
    source = path.read_text(encoding="utf-8").replace(scripts.SVG, "")
    assert scripts.ADDRESS.findall(source) == []
    assert "@import" not in source
    assert re.findall(r"url\((?![\"']?data:)", source) == []


def test_every_vendored_file_is_listed_with_its_digest_and_is_as_it_was_made() -> None:
    readme = (VENDOR / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w.]+)` \|.*\| `([0-9a-f]{64})` \|$", readme, re.MULTILINE))
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del there["README.md"]
    assert listed == there
    assert "Permission is hereby granted, free of charge" in (VENDOR / "uPlot.LICENSE").read_text(encoding="utf-8")
    version = re.search(r"\(v([\d.]+)\)", (VENDOR / "uPlot.iife.min.js").read_text(encoding="utf-8")[:200])
    assert version is not None
    assert f"| {version[1]} |" in readme


def test_a_wheel_takes_every_file_of_the_page() -> None:
    """Hatch packs whatever lies in a package and git doesn't ignore."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/everystep"]}
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    files = [path for path in PAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    parts = {part for path in files for part in path.relative_to(ROOT).parts}
    assert [(part, pattern) for part in parts for pattern in ignored if fnmatch(part, pattern)] == []


# --- the checker can fail ----------------------------------------------------------------------------
LONG = "  x();\n" * 40


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x();\n" * 299, "300 lines"),
        (f"function f() {{\n{LONG}}}\n", "line 2: a function of 42 lines"),
        (f"const f = (a) => {{\n{LONG}}};\n", "a function of 42 lines"),
        (f"class A {{\n  get f() {{\n{LONG}  }}\n}}\n", "line 3: a function of 42 lines"),
        (f"class A {{\n  async *#f(a = (1)) {{\n{LONG}  }}\n}}\n", "line 3: a function of 42 lines"),
        ("node.innerHTML = x;\n", "reads text as markup"),
        ("node.outerHTML = x;\n", "reads text as markup"),
        ('node["innerHTML"] = x;\n', "reads text as markup"),
        ("node.insertAdjacentHTML('beforeend', x);\n", "reads text as markup"),
        ("document.write(x);\n", "reads text as markup"),
        ("new DOMParser();\n", "reads text as markup"),
        ("eval(x);\n", "runs what is made at run time"),
        ("new Function(x);\n", "runs what is made at run time"),
        ("await import(x);\n", "runs what is made at run time"),
        ("setTimeout('x()', 5);\n", "runs what is made at run time"),
        ('node.setAttribute("style", x);\n', "a style beside the sheets"),
        ('el("p", { style: "color: red" });\n', "a style beside the sheets"),
        ("node.style.color = x;\n", "a style beside the sheets"),
        ('node.style.setProperty("color", x);\n', "a style beside the sheets"),
        ('fetch("https://elsewhere.example/x");\n', "is an address of another host"),
        ('fetch("//elsewhere.example/x");\n', "is an address of another host"),
        ("// see http://elsewhere.example\n", "is an address of another host"),
        ('const w = translator({ en: { a: "x" }, ko: { a: "x", b: "y" } });\n', "w: b in one language alone"),
        ('const w = translator({ en: { a: "x" } });\n', "instead of en and ko"),
        ('const w = translator({ en: { a: "{n} x" }, ko: { a: "{m} x" } });\n', "a has other gaps"),
        ('const w = translator({ en: { a: "x" }, ko: { a: "x" } });\nw("b");\n', "no words for b"),
    ],
)
def test_the_checker_complains(source: str, words: str) -> None:
    assert words in complaints(source)


def test_the_checker_wants_a_comment_first() -> None:
    assert "doesn't open with a comment" in scripts.complaints(scripts.Script("one.js", "x();\n"))[0]


@pytest.mark.parametrize(
    "source",
    [
        f"class A {{\n{LONG}}}\n",  # no function
        f"const a = {{\n{'  x: 1,' * 60}\n}};\n",
        f"if (a) {{\n{LONG}}}\n",
        f"for (const a of b()) {{\n{LONG}}}\n",
        "// innerHTML is never used\n",
        "const braces = /[{(]/g;\nconst more = '}}}';\nconst most = `{{${a}`;\n",
        'const SVG = "http://www.w3.org/2000/svg";\n',
        'node.style.setProperty("--x", y);\nconst style = getComputedStyle(node);\nconst a = b / c / d;\n',
        'const w = translator({ en: { a: ({ n }) => (n ? `${n}: x` : "y"), b: "," }, ko: { b: "c: d", a: "{n}" } });\n'
        'w("a");\n',
    ],
)
def test_the_checker_lets_be_what_is_allowed(source: str) -> None:
    assert complaints(source) == ""
