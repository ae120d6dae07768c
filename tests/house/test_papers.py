"""README, docs, Makefile and build files agree with the code and with each other."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

import everystep
from everystep.config import Settings
from everystep.settings_sources import flag_name, variable_name

ROOT = Path(__file__).parents[2]
TARGETS = ["serve", "test", "test-all", "check", "bench"]
EXTRAS = {"torch", "vllm", "ray", "bench", "browser", "otel", "dev"}  # of which the built ones must be there
SKIPPED_FOLDERS = {
    ".git",
    ".venv",
    ".venv-all",
    ".venv-vllm",
    ".venv-genai",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "results",
}

# Assembled, so that this file doesn't name what no file may name.
HOSTS = [
    ".".join(parts) for parts in [("pypi", "org"), ("files", "pythonhosted", "org"), ("download", "pytorch", "org")]
]
MACHINE_PATHS = ["/".join(["", *parts, ""]) for parts in [("work",), ("opt", "wheels"), ("opt", "pypi"), ("root",)]]


def project_files() -> list[Path]:
    """What git has or would take; without git, everything but the folders that tools make."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not SKIPPED_FOLDERS & set(path.parts)]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


PYPROJECT = tomllib.loads(text_of(ROOT / "pyproject.toml"))


@pytest.mark.parametrize("words", ["make serve", "make test"])
def test_the_readme_names_the_two_commands(words: str) -> None:
    assert re.search(rf"^\s*{words}\b", text_of(ROOT / "README.md"), re.MULTILINE)


def test_both_readmes_name_the_same_flags_commands_links_and_figures() -> None:
    english, korean = text_of(ROOT / "README.md"), text_of(ROOT / "README.ko.md")
    for pattern in (r"`(--[\w-]+)`", r"^(make [\w-]+)", r"\]\((\w[^)]+)\)", r"`(/[\w/{}*]+)`", r"^(\w+ +[\d ]+)$"):
        found = [Counter(re.findall(pattern, text, re.MULTILINE)) for text in (english, korean)]
        found = [{name: n for name, n in each.items() if "README" not in name} for each in found]
        assert found[0] == found[1], pattern
        assert found[0], f"{pattern} finds nothing"
    assert english.count("\n## ") == korean.count("\n## ")


@pytest.mark.parametrize("path", ["README.md", "README.ko.md"])
def test_the_comparison_of_policies_is_the_one_in_contributing(path: str) -> None:
    """Which is what the example prints: see test_examples."""
    table = re.search(r"^policy .*?(?=^```)", text_of(ROOT / path), re.MULTILINE | re.DOTALL)
    assert table is not None
    assert table[0] in text_of(ROOT / "CONTRIBUTING.md")


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_has_the_target(target: str) -> None:
    assert re.search(rf"^{target}:", text_of(ROOT / "Makefile"), re.MULTILINE)


def test_ci_runs_check_and_test_all() -> None:
    path = ROOT / ".ci" / "run"
    assert path.stat().st_mode & 0o111, "it must be executable"
    script = text_of(path)
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script
    assert re.search(r"make .*\bcheck test-all$", script, re.MULTILINE)


def test_the_table_of_options_is_what_the_settings_make() -> None:
    render = runpy.run_path(str(ROOT / "docs" / "make_options.py"))["render"]
    assert text_of(ROOT / "docs" / "options.md") == render(), "run: make options"


@pytest.mark.parametrize("field", Settings.model_fields)
def test_a_setting_stands_in_the_table_as_flag_variable_and_key(field: str) -> None:
    table = text_of(ROOT / "docs" / "options.md")
    (row,) = [line for line in table.splitlines() if f"| `{field}` |" in line]
    flags = (flag_name(field), flag_name(f"no_{field}"))
    assert row.startswith(tuple(f"| `{flag}" for flag in flags))
    assert f"| `{variable_name(field)}` |" in row
    assert Settings.model_fields[field].description in row


def test_no_file_names_a_package_host_or_a_path_of_the_makers_machine() -> None:
    found = []
    for path in project_files():
        text = text_of(path)
        found += [f"{path.relative_to(ROOT)}: {host}" for host in HOSTS if host in text]
        found += [
            f"{path.relative_to(ROOT)}: {place}"
            for place in MACHINE_PATHS
            if re.search(rf"(?<![\w.$}}/-]){re.escape(place)}", text)
        ]
    assert found == []


def test_names_of_test_files_are_unique() -> None:
    """Two tests of one name can't be told apart in a report."""
    names = Counter(path.name for path in project_files() if path.name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", [path for path in project_files() if path.suffix == ".md"], ids=lambda path: path.name)
def test_links_between_the_papers_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", text_of(path)):
        if "://" not in link:
            assert (path.parent / link).exists(), link


def test_the_constraints_pin_every_dependency_within_its_range() -> None:
    from packaging.requirements import Requirement

    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", text_of(ROOT / "constraints.txt"), re.MULTILINE))
    project = PYPROJECT["project"]
    for requirement in map(Requirement, chain(project["dependencies"], *project["optional-dependencies"].values())):
        version = pinned[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version), f"{requirement} but {version} is pinned"


def test_extras_are_those_of_the_contract() -> None:
    assert PYPROJECT["project"]["optional-dependencies"].keys() <= EXTRAS


def test_no_default_dependency_is_a_heavy_one() -> None:
    names = {re.split(r"[^\w-]", line)[0].lower() for line in PYPROJECT["project"]["dependencies"]}
    assert names.isdisjoint({"torch", "transformers", "vllm", "ray", "accelerate", "openvino-genai", "optimum-intel"})


def test_the_version_has_one_home() -> None:
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/everystep/version.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", everystep.__version__)


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert "## [Unreleased]" in text_of(ROOT / "CHANGELOG.md")


def test_the_licence_is_apache_2() -> None:
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text_of(ROOT / "LICENSE")


def test_public_names_are_those_of_the_contract_and_found_where_they_live() -> None:
    from everystep.sampling_params import SamplingParams

    assert set(everystep.__all__) == {"LLM", "SamplingParams", "create_app", "__version__"}
    assert everystep.SamplingParams is SamplingParams
    assert set(everystep.__all__) <= set(dir(everystep))
    with pytest.raises(AttributeError, match="no attribute 'Model'"):
        everystep.Model  # noqa: B018
