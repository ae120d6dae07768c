"""What a model name means: an embedded default, a GGUF file, a Hugging Face folder, or a hub id.

Owns the order in which these are tried.  Ignorant of what is inside the files.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from everystep.architecture import Checkpoint
from everystep.checkpoint.download import Progress
from everystep.checkpoint.gguf_checkpoint import open_gguf
from everystep.checkpoint.hf_checkpoint import open_hf_folder
from everystep.checkpoint.hub import HubId, cached_snapshot, fetch_from_hub, parse_hub_id
from everystep.checkpoint.pull import DEFAULT_MODEL, pull
from everystep.errors import ModelError

logger = logging.getLogger(__name__)


def default_cache_dir() -> Path:
    """``$EVERYSTEP_CACHE_DIR``, else ``everystep`` in the user's cache folder."""
    named = os.environ.get("EVERYSTEP_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everystep"


def open_checkpoint(name: str, cache_dir: Path, progress: Progress | None = None) -> Checkpoint:
    """Open a model by name or path; weights stay unread.  Raises :class:`ModelError` in one clear line.

    What is in no cache is fetched, and ``progress`` told of it.
    """
    path = _locate(name, cache_dir, progress)
    try:
        return open_hf_folder(path, name, cache_dir) if path.is_dir() else open_gguf(path, name, cache_dir)
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror or error}") from error


def _locate(name: str, cache_dir: Path, progress: Progress | None) -> Path:
    if name == DEFAULT_MODEL:
        return pull(name, cache_dir, progress)
    path = Path(name).expanduser()
    if path.is_file() and path.suffix != ".gguf":
        raise ModelError(f"{path} is neither a .gguf file nor a Hugging Face folder")
    if path.is_file() or path.is_dir():
        return path
    if path.is_symlink() or path.exists():  # a pipe, opened, would wait for a writer for ever
        raise ModelError(f"{path} is neither a regular file nor a folder")
    hub_id = parse_hub_id(name)
    if hub_id is not None:
        return cached_snapshot(hub_id) or _fetch(hub_id, cache_dir, progress)
    raise ModelError(
        f"no model {name!r}: not {DEFAULT_MODEL!r}, no such file or folder, and no hub id (owner/name[@revision])"
    )


def _fetch(hub_id: HubId, cache_dir: Path, progress: Progress | None) -> Path:
    """Gigabytes, perhaps: where nobody watches a bar, the log says what takes so long."""
    from huggingface_hub import constants  # slow to import, and rarely needed

    if progress is None and not constants.HF_HUB_OFFLINE:
        logger.info("%s isn't in the cache and is fetched; `everystep pull %s` shows a bar", hub_id, hub_id)
    return fetch_from_hub(hub_id, cache_dir, progress)
