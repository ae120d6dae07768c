"""The rules of the house for the page's JavaScript: source text in, complaints out.

Owns the bans, and just enough of the language for them: what is text, comment or pattern, and where a function ends.
Ignorant of pytest and of where the sources lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
SVG = "http://www.w3.org/2000/svg"  # a name, not an address

TEXTS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
      | (?P<pattern>(?<=[(,=:\[!&|?;])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*)""",
    re.VERBOSE | re.DOTALL,
)
BANNED = {
    r"\b(?:inner|outer)HTML\b": "reads text as markup",
    r"\binsertAdjacentHTML\b": "reads text as markup",
    r"\bset(?:HTML|HTMLUnsafe)\b": "reads text as markup",
    r"\bDOMParser\b|\bcreateContextualFragment\b": "reads text as markup",
    r"\bdocument\s*\.\s*write": "reads text as markup",
    r"\beval\s*\(|\bnew\s+Function\b|\bimport\s*\(": "runs what is made at run time",
    r"\bset(?:Timeout|Interval)\s*\(\s*[\"'`]": "runs what is made at run time",
    r"\bcssText\b|\bstyle\s*:|\bsetAttribute\s*\(\s*[\"'`]style": "a style beside the sheets",
    r"\.style\s*\.\s*(?!setProperty\b)\w+|\.style\s*\[|\.style\s*=[^=]": "a style beside the sheets",
    r"\.setProperty\s*\(\s*[\"'`](?!--)": "a style beside the sheets",
}
ADDRESS = re.compile(r"(?:https?|wss?|ftp):/*[\w.]|[\"'`(]//[\w.]")
CONTROL = {"if", "for", "while", "switch", "catch", "with"}
KEY = re.compile(r"\s*[\"']?([\w-]+)[\"']?\s*(?=[:(])")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Script:
    """One file, by its name."""

    name: str
    source: str

    @property
    def code(self) -> str:
        """The source with comments, texts and patterns blank, each character where it was."""
        return TEXTS.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), self.source)

    @property
    def spoken(self) -> str:
        """The source with its comments blank."""
        return TEXTS.sub(
            lambda found: re.sub(r"[^\n]", " ", found.group()) if found["comment"] else found.group(), self.source
        )


def complaints(script: Script) -> list[str]:
    """Everything in one file that the house doesn't allow, one line each; empty is good."""
    found: list[str] = []
    for check in (_shape, _functions, _bans, _addresses, _tables):
        found += [f"{script.name}: {words}" for words in check(script)]
    return found


def _shape(script: Script) -> Iterator[str]:
    num_lines = len(script.source.splitlines())
    if num_lines >= MAX_FILE_LINES:
        yield f"{num_lines} lines, fewer than {MAX_FILE_LINES} are allowed"
    if not re.match(r"// \S", script.source):
        yield "doesn't open with a comment that says what it owns"


def _functions(script: Script) -> Iterator[str]:
    code = script.code
    for at in (found.start() for found in re.finditer(r"\{", code)):
        if _opens_function(code, at):
            num_lines = code.count("\n", at, end_of(code, at)) + 1
            if num_lines > MAX_FUNCTION_LINES:
                line = code.count("\n", 0, at) + 1
                yield f"line {line}: a function of {num_lines} lines, at most {MAX_FUNCTION_LINES}"


def _opens_function(code: str, at: int) -> bool:
    """Whether the brace follows an arrow, or parameters that aren't a statement's condition."""
    before = code[:at].rstrip()
    if before.endswith("=>"):
        return True
    if not before.endswith(")"):
        return False
    depth = 0
    for place in range(len(before) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(before[place], 0)
        if depth == 0:
            word = re.search(r"(\w+)\s*$", before[:place])
            return word is None or word[1] not in CONTROL
    return False


def end_of(code: str, at: int) -> int:
    """Where the brace that opens at ``at`` is closed."""
    depth = 0
    for place in range(at, len(code)):
        depth += {"{": 1, "}": -1}.get(code[place], 0)
        if depth == 0:
            return place
    raise ValueError("a brace that nobody closes")


def _bans(script: Script) -> Iterator[str]:
    for pattern, words in BANNED.items():
        for found in re.finditer(pattern, script.spoken):
            yield f"{found.group().strip()!r} {words}"


def _addresses(script: Script) -> Iterator[str]:
    for found in ADDRESS.finditer(script.source.replace(SVG, "")):
        yield f"{found.group()!r} is an address of another host"


# --- words ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Table:
    """One ``translator({ en: …, ko: … })``: by language, each key's source, and the name that it is called by."""

    name: str
    languages: dict[str, dict[str, str]]


def tables(script: Script) -> list[Table]:
    found = re.finditer(r"\bconst (\w+) = translator\(\s*(?=\{)", script.code)
    return [Table(one[1], _languages(script, one.end())) for one in found]


def _languages(script: Script, at: int) -> dict[str, dict[str, str]]:
    return {tag: entries(script, script.code.index("{", value)) for tag, value, _ in _starts(script, at)}


def entries(script: Script, at: int) -> dict[str, str]:
    """The keys of the object that opens at ``at``, with the source of each value."""
    starts = list(_starts(script, at))
    ends = [comma for _, _, comma in starts[1:]] + [end_of(script.code, at)]
    return {key: script.source[start:end].strip(" :,\n") for (key, start, _), end in zip(starts, ends, strict=True)}


def _starts(script: Script, at: int) -> Iterator[tuple[str, int, int]]:
    """Each key of an object, where its value begins, and the comma (or brace) before it."""
    code, depth = script.code, 0
    for place in range(at, end_of(code, at)):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(code[place], 0)
        opens = place == at or (depth == 1 and code[place] == ",")
        if opens and (key := KEY.match(script.spoken, place + 1)):
            yield key[1], key.end(), place


def _tables(script: Script) -> Iterator[str]:
    for table in tables(script):
        if set(table.languages) != {"en", "ko"}:
            yield f"{table.name}: languages {sorted(table.languages)} instead of en and ko"
            continue
        english, korean = table.languages["en"], table.languages["ko"]
        if odd := english.keys() ^ korean.keys():
            yield f"{table.name}: {', '.join(sorted(odd))} in one language alone"
        for key in english.keys() & korean.keys():
            if _is_text(english[key]) and _is_text(korean[key]) and _gaps(english[key]) != _gaps(korean[key]):
                yield f"{table.name}: {key} has other gaps in Korean than in English"
        called = set(re.findall(rf"\b{table.name}\(\s*\"([\w-]+)\"", script.spoken))
        if unknown := called - english.keys():
            yield f"{table.name}: no words for {', '.join(sorted(unknown))}"


def _is_text(value: str) -> bool:
    return value.startswith(('"', "`", "'"))


def _gaps(value: str) -> set[str]:
    return set(PLACEHOLDER.findall(value))
