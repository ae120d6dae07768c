"""The Hugging Face folder of a model: the one that it is, or one that is made of a GGUF file, once.

A folder that others would misread is made anew too: see :mod:`everystep.checkpoint.renamed_head`.

Owns the cache of converted folders: their keys, that only whole ones are found there, and that two processes don't make
the same at once.  Ignorant of the files' content.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path

from everystep.architecture import Checkpoint
from everystep.checkpoint.digest import remember_sha256, remembered_sha256, sha256_of
from everystep.checkpoint.download import Progress, Silent
from everystep.checkpoint.expected import expected_shapes
from everystep.checkpoint.fields import read_fields
from everystep.checkpoint.file_lock import exclusive
from everystep.checkpoint.hf_checkpoint import open_weight_files
from everystep.checkpoint.hf_config_files import config_json, generation_config_json, tokenizer_config_json
from everystep.checkpoint.renamed_head import stores_head_alone, write_renamed
from everystep.checkpoint.safetensors_writer import num_data_bytes, write_float32
from everystep.errors import ModelError

CONVERTER_VERSION = 2  # counted up whenever what is written changes
WEIGHTS = "model.safetensors"
WHOLE = "config.json"
SOURCE = "everystep.json"  # says whose conversion it is, and what is in it
DIGESTS = "sha256"


def hf_folder(checkpoint: Checkpoint, cache_dir: Path, progress: Progress | None = None) -> Path:
    """A folder that transformers, vLLM and our own reader open.

    A GGUF file's weights become float32 there: exactly the numbers that this package computes with.  Raises
    :class:`ModelError` in one line where the cache can't be written or is full.
    """
    if is_hf_folder(checkpoint) and not stores_head_alone(checkpoint):
        return Path(checkpoint.path)
    folder = converted_folder(checkpoint, cache_dir)
    progress = progress or Silent()
    try:
        if not is_whole(folder):
            waiting = functools.partial(
                progress.stage, "waiting for another process that converts the same model", None
            )
            with exclusive(_beside(folder, "lock"), waiting):
                if not is_whole(folder):  # another process may have made it meanwhile
                    shutil.rmtree(folder, ignore_errors=True)  # damaged
                    _convert(checkpoint, folder, progress)
                    _remember(folder)
                    _remove_outdated(folder)
    except OSError as error:
        raise ModelError(f"can't convert {checkpoint.name} into {folder}: {error.strerror or error}") from error
    return folder


def convert_into(checkpoint: Checkpoint, folder: Path, progress: Progress | None = None) -> None:
    """The conversion in a folder of the user's own, which must be absent or empty.  Raises as :func:`hf_folder`."""
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise ModelError(f"{folder} isn't empty: a converted model goes into a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        _convert(checkpoint, folder, progress or Silent())
    except OSError as error:
        raise ModelError(f"can't convert {checkpoint.name} into {folder}: {error.strerror or error}") from error


def is_hf_folder(checkpoint: Checkpoint) -> bool:
    """Whether the model is such a folder already."""
    return Path(checkpoint.path).is_dir()


def converted_folder(checkpoint: Checkpoint, cache_dir: Path) -> Path:
    """Where the conversion is, or would be.  A GGUF file's key covers all of it, its tokenizer too."""
    return cache_dir / "converted" / f"{checkpoint.content_key[:32]}-v{CONVERTER_VERSION}"


def is_whole(folder: Path) -> bool:
    """Folders come into place by one rename; a copy that was cut or changed is seen by its files' digests.

    A file of the same size, time and inode isn't read again, so what a disk changes by itself isn't seen.
    """
    try:
        recorded = read_fields(folder / SOURCE).object(DIGESTS).as_dict()
        is_recorded = WHOLE in recorded and all(file.path.name in recorded for file in open_weight_files(folder))
        return is_recorded and all(
            remembered_sha256(folder / name, _cache_of(folder)) == digest for name, digest in recorded.items()
        )
    except (ModelError, OSError):
        return False


def _cache_of(folder: Path) -> Path:
    return folder.parent.parent


def _record(checkpoint: Checkpoint, folder: Path) -> None:
    """Whose conversion it is, and the digest of each file; of links to the model's own files too."""
    digests = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    source = {"converted_from": checkpoint.name, "converter_version": CONVERTER_VERSION, DIGESTS: digests}
    _write_json(folder / SOURCE, source)


def _remember(folder: Path) -> None:
    """So that the next start doesn't read gigabytes to find them unchanged."""
    for name, digest in read_fields(folder / SOURCE).object(DIGESTS).as_dict().items():
        remember_sha256(folder / name, _cache_of(folder), digest)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


def _convert(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
    """Write beside, then move into place.  What an interrupted process left is cleared away first."""
    part = _beside(folder, "part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        _write(checkpoint, part, progress)
        _record(checkpoint, part)
        os.rename(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_outdated(folder: Path) -> None:
    """What earlier converters made of the same file; whoever has it mapped keeps its pages."""
    stem = folder.name.rpartition("-v")[0]
    for outdated in folder.parent.glob(f"{stem}-v*"):
        if outdated != folder:
            shutil.rmtree(outdated, ignore_errors=True)


def _write(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
    if is_hf_folder(checkpoint):
        write_renamed(checkpoint, folder, progress)
    else:
        _write_of_gguf(checkpoint, folder, progress)


def _write_of_gguf(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
    architecture, tokenizer = checkpoint.architecture, checkpoint.tokenizer
    config = config_json(architecture, tokenizer)  # refuses before gigabytes are written
    shapes = expected_shapes(architecture)
    progress.stage(f"converting {checkpoint.name} to a Hugging Face folder", num_data_bytes(shapes))
    write_float32(folder / WEIGHTS, shapes, checkpoint.weights.load, progress.advance)
    (folder / "tokenizer.json").write_text(tokenizer.tokenizer_json, "utf-8")
    _write_json(folder / "tokenizer_config.json", tokenizer_config_json(tokenizer, checkpoint.outline.max_context_len))
    _write_json(folder / "generation_config.json", generation_config_json(tokenizer))
    _write_json(folder / WHOLE, config)


def _write_json(path: Path, values: dict[str, object]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", "utf-8")
