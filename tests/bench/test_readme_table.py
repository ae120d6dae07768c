"""The READMEs' table: made from result files, the same figures in every language, and made twice is made once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everystep.bench.passes import BenchFailed
from everystep.bench.readme import BEGIN, END, language_of, read_result, replaced

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "readme_table.py"
ENVIRONMENT = {
    "date": "2026-11-30T11:00:00+00:00", "cpu": "Some CPU", "cpu_family": "23", "cpu_model": "1", "cpu_flags": ["avx2"],
    "usable_cpus": 2, "memory_gib": 23.5, "python": "3.11.7", "load_average": 0.1, "git_commit": "0123456789abcdef",
    "everystep": "0.1.0",
}  # fmt: skip


def run(policy: str, n: int, wall_s: float, ratio: float | None) -> dict[str, Any]:
    return {"engine": "everystep", "policy": policy, "label": policy, "n": n, "wall_s": wall_s,
            "requests_per_s": n / wall_s, "ratio_to_static": ratio, "ratio_to_baseline": None}  # fmt: skip


def result(model: str, *runs: dict[str, Any]) -> dict[str, Any]:
    shared = {"about": "everystep 0.1.0, int8", "versions": {"openvino": "2026.4", "httpx": ""}}
    contenders = [{"label": label, **shared} for label in ("static", "continuous")]
    return {"schema": 1, "environment": ENVIRONMENT, "settings": {"model": model}, "contenders": contenders,
            "absent": ["vllm isn't measured: /some/python has no vllm"], "runs": list(runs)}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> list[Path]:
    made = [
        result("smollm2-135m", run("static", 1, 0.5, 1.0), run("continuous", 1, 0.25, 2.0)),
        result("/somewhere/opt-125m-shape", run("static", 1, 0.0625, 1.0), run("static", 64, 8.0, 1.0)),
    ]
    paths = [tmp_path / f"{number}.json" for number in range(len(made))]
    for path, words in zip(paths, made, strict=True):
        path.write_text(json.dumps(words), encoding="utf-8")
    return paths


@pytest.fixture
def readmes(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "README.md", tmp_path / "README.ko.md"]
    for path in paths:
        path.write_text(f"# before\n\n{BEGIN}\nold\n{END}\n\nafter 1.23\n", encoding="utf-8")
    return paths


def write(results: list[Path], readmes: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, results), "--readme", *map(str, readmes)]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")}, check=False)


def test_both_languages_get_the_same_figures_and_a_second_run_changes_nothing(
    results: list[Path], readmes: list[Path]
) -> None:
    assert write(results, readmes).returncode == 0
    english, korean = (path.read_text(encoding="utf-8") for path in readmes)
    assert re.findall(r"[\d.]+", english) == re.findall(r"[\d.]+", korean)
    assert "| continuous | 0.250 |" in english
    assert "Seconds until" in english
    assert "- static; continuous: everystep 0.1.0, int8, openvino 2026.4\n" in korean
    assert "초당 요청 수" in korean
    assert english.startswith("# before\n\n")
    assert english.endswith("\n\nafter 1.23\n")
    assert "old" not in english
    assert "- vllm isn't measured\n" in english
    assert not {"/somewhere", "/some/python"} & set(re.findall(r"/\w+(?:/python)?", english)), "the maker's own paths"
    assert english.count("Some CPU") == 1, "one machine, said once"
    assert write(results, readmes).returncode == 0
    assert [path.read_text(encoding="utf-8") for path in readmes] == [english, korean]


def test_without_marks_the_readme_stays_and_the_error_names_them(results: list[Path], tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("no marks here\n", encoding="utf-8")
    done = write(results, [readme])
    assert done.returncode == 1
    assert done.stderr.strip() == f"{readme} needs {BEGIN} and {END}, once each and in this order"
    assert readme.read_text(encoding="utf-8") == "no marks here\n"


@pytest.mark.parametrize("text", [f"{END} {BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"])
def test_marks_out_of_order_or_doubled_are_refused(text: str) -> None:
    with pytest.raises(BenchFailed, match="once each"):
        replaced(text, "new", "README.md")


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text('{"schema": 9}', encoding="utf-8")
    with pytest.raises(BenchFailed, match="has schema 9, not 1"):
        read_result(path)


@pytest.mark.parametrize(("name", "language"), [("README.md", "en"), ("README.ko.md", "ko"), ("koala.md", "en")])
def test_the_language_is_in_the_files_name(name: str, language: str) -> None:
    assert language_of(Path(name)) == language
