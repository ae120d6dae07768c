"""The benchmark's part of a README, replaced between two marks.

Owns the marks and what stands between them.  Every language gets the same figures from the same file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from everystep.bench.passes import BenchFailed
from everystep.bench.results import SCHEMA, Result
from everystep.bench.tables import ENGLISH, KOREAN, contender_lines, machine_line, markdown, rates_table, seconds_table

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
LANGUAGES = {"en": ENGLISH, "ko": KOREAN}


def language_of(readme: Path) -> str:
    """``README.ko.md`` is Korean; without a language in its name it is English."""
    suffixes = [suffix.removeprefix(".") for suffix in readme.suffixes]
    return next((language for language in LANGUAGES if language in suffixes), "en")


def part(results: Sequence[Result], language: str) -> str:
    """Two tables a model and who computed what, then the machine."""
    words = LANGUAGES[language]
    blocks = []
    for result in results:
        name = Path(result["settings"]["model"]).name
        for table in (seconds_table(result, words), rates_table(result, words)):
            blocks += [f"**{name}**: {table.title}", markdown(table)]
        absent = [line.partition(":")[0] for line in result["absent"]]  # why, is full of the machine's own paths
        blocks.append("\n".join(f"- {line}" for line in [*contender_lines(result), *absent]))
    machines = dict.fromkeys(machine_line(result) for result in results)
    return "\n\n".join([*blocks, *machines])


def replaced(text: str, new: str, where: str) -> str:
    """``text`` with ``new`` between the marks.  Raises :class:`BenchFailed` where they aren't there once each."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BenchFailed(f"{where} needs {BEGIN} and {END}, once each and in this order")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}"


def write_readme(readme: Path, results: Sequence[Result]) -> None:
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replaced(text, part(results, language_of(readme)), str(readme)), encoding="utf-8")


def read_result(path: Path) -> Result:
    """A result file.  Raises :class:`BenchFailed` where it is none, or of another schema."""
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BenchFailed(f"can't read {path}: {error}") from error
    if result.get("schema") != SCHEMA:
        raise BenchFailed(f"{path} has schema {result.get('schema')!r}, not {SCHEMA}")
    return result
