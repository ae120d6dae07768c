"""Several modules as one script: the order, each once, and what it refuses by name."""

from __future__ import annotations

import re

import pytest

from everystep.api.page.bundle import bundle


def parts_of(script: str) -> list[str]:
    """The files in the script, in order."""
    return re.findall(r"^// --- (\w+)\.js$", script, re.MULTILINE)


def imports(*files: str) -> str:
    return "".join(f'import {{ {file}_ }} from "./{file}.js";\n' for file in files)


def module(name: str, *imported: str) -> str:
    return f"// {name}\n{imports(*imported)}export const {name}_ = 1;\n"


def test_what_a_module_imports_stands_before_it_and_each_stands_once() -> None:
    sources = {
        "main": module("main", "left", "right"),
        "right": module("right", "base"),
        "left": module("left", "right", "base"),
        "base": module("base"),
        "stray": module("stray"),
    }
    assert parts_of(bundle(sources, "main")) == ["base", "right", "left", "main"]


def test_imports_go_and_exports_stay_as_declarations() -> None:
    sources = {
        "main": 'import {\n  a,\n  B,\n} from "./one.js";\nimport { c, d } from "./one.js";\nB(a, c, d);\n',
        "one": "export const a = 1;\nexport class B {}\nexport async function c() {}\nexport function* d() {}\n",
    }
    assert bundle(sources, "main") == (
        "// --- one.js\nconst a = 1;\nclass B {}\nasync function c() {}\nfunction* d() {}\n"
        "\n// --- main.js\nB(a, c, d);\n"
    )


def test_words_in_texts_and_comments_are_left_alone() -> None:
    source = '// what we import and\nconst words = "export const x";\n  export_(words);\nfunction exported() {}\n'
    assert bundle({"main": source}, "main") == f"// --- main.js\n{source}"


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"other": ""}, "main.js isn't there"),
        ({"main": imports("gone")}, "main.js imports gone.js, which isn't there"),
        ({"main": imports("one"), "one": "const one_ = 1;\n"}, "main.js imports one_, which one.js doesn't export"),
        ({"main": module("main", "main")}, "main.js imports itself, by way of main"),
        (
            {"main": imports("a"), "a": module("a", "b"), "b": module("b", "a")},
            "a.js imports itself, by way of a and b",
        ),
        (
            {"main": imports("one") + "function one_() {}\n", "one": module("one")},
            "one_ is declared by one.js and by main.js",
        ),
        ({"main": "let twice = 1;\nasync function twice() {}\n"}, "twice is declared by main.js and by main.js"),
        ({"main": "export default 5;\n"}, "main.js has a form that isn't known here: export default 5;"),
        ({"main": "const a = 1;\nexport { a };\n"}, "export { a };"),
        ({"main": 'export * from "./one.js";\n', "one": ""}, "isn't known here"),
        ({"main": 'import one from "./one.js";\n', "one": ""}, "isn't known here"),
        ({"main": 'import * as one from "./one.js";\n', "one": ""}, "isn't known here"),
        ({"main": 'import "./one.js";\n', "one": ""}, "isn't known here"),
        ({"main": "import { a } from './one.js';\n", "one": "export const a = 1;\n"}, "isn't known here"),
        ({"main": 'import { a } from "https://elsewhere.example/a.js";\n'}, "isn't known here"),
        ({"main": 'import { a } from "../a.js";\n', "a": "export const a = 1;\n"}, "isn't known here"),
        ({"main": 'import { a as b } from "./one.js";\n', "one": "export const a = 1;\n"}, "a as b"),
        ({"main": 'import("./one.js");\n', "one": ""}, "isn't known here"),
        ({"main": "const { a, b } = window;\n"}, "isn't known here: const { a, b } = window;"),
        ({"main": "export const [a] = list;\n"}, "isn't known here"),
    ],
)
def test_what_it_refuses_it_names(sources: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        bundle(sources, "main")
