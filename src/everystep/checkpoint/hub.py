"""Models of the hub: found in its cache first, fetched where they aren't there.

Owns what a hub id is and the order of a download.  The cache is the hub client's own (``HF_HOME``, ``HF_HUB_CACHE``),
shared with every other program that uses it, in the client's layout: blobs by etag, snapshots that link to them.
"""

from __future__ import annotations

import functools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everystep.checkpoint.digest import remember_sha256
from everystep.checkpoint.download import Progress, Silent
from everystep.checkpoint.file_lock import exclusive
from everystep.checkpoint.hf_checkpoint import weight_names
from everystep.checkpoint.hf_tokenizer import TOKENIZER, check_tokenizer, has_tokenizer
from everystep.checkpoint.hub_conversions import where_converted
from everystep.checkpoint.hub_errors import Unreachable, hub_words
from everystep.checkpoint.hub_files import CONFIG, OnlyPickles, RemoteFile, side_files, weight_files
from everystep.checkpoint.resumed_download import ResumedDownload
from everystep.errors import ModelError

HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[\w.-]+)(@(?P<revision>[\w.][\w./-]*))?")
MAX_HTTP_BYTES = 50 * 10**9  # a single file beyond is served by the hub's own protocol only
ETAG = re.compile(r"[0-9a-f]{40,64}")  # anything else names no blob of ours: the client sees to such a file


@dataclass(frozen=True, slots=True)
class HubId:
    """``owner/name``, and a branch, tag or commit of it."""

    repo: str
    revision: str

    def __str__(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"


def parse_hub_id(name: str) -> HubId | None:
    """``owner/name`` or ``owner/name@revision``; ``None`` for anything else."""
    match = HUB_ID.fullmatch(name)
    return HubId(match["repo"], match["revision"] or "main") if match else None


def cached_snapshot(hub_id: HubId) -> Path | None:
    """Its folder where all that is needed lies in the hub's cache; asks nobody."""
    from huggingface_hub import snapshot_download  # half a second to import, and rarely needed
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        options: dict[str, Any] = {"local_files_only": True, "allow_patterns": [CONFIG, TOKENIZER]}
        folder = Path(snapshot_download(hub_id.repo, revision=hub_id.revision, cache_dir=_cache(), **options))
    except (LocalEntryNotFoundError, ValueError):  # not there, or a name that can't be
        return None
    return folder if is_whole_snapshot(folder) else None


def is_whole_snapshot(folder: Path) -> bool:
    """Weights come last, so where they are the other files are too."""
    try:
        weights = weight_names(folder)
    except ModelError:
        return False
    has_sides = (folder / CONFIG).is_file() and has_tokenizer({path.name for path in folder.iterdir()})
    return has_sides and bool(weights) and all((folder / name).is_file() for name in weights)


def fetch_from_hub(hub_id: HubId, cache_dir: Path, progress: Progress | None = None) -> Path:
    """Bring the cache up to date with the hub and give the snapshot's folder.

    What broke off goes on where it stopped.  Raises :class:`ModelError` in one line; a hub that can't be reached is no
    error where the cache has the model.
    """
    try:
        with hub_words(hub_id):
            return _Fetch(hub_id, cache_dir, progress or Silent()).run()
    except Unreachable:
        snapshot = cached_snapshot(hub_id)
        if snapshot is None:
            raise
        return snapshot


class _Fetch:
    """One download of one repository."""

    def __init__(self, hub_id: HubId, cache_dir: Path, progress: Progress) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import logging

        # Its warnings of each retry would stand around the one line that counts.
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        self._id, self._cache_dir, self._progress = hub_id, cache_dir, progress
        self._endpoint = constants.ENDPOINT
        self._blobs = _cache() / f"models--{hub_id.repo.replace('/', '--')}" / "blobs"

    def run(self) -> Path:
        from huggingface_hub import HfApi

        self._progress.stage(f"asking the hub for {self._id}", None)
        api = HfApi(endpoint=self._endpoint)
        info = api.model_info(self._id.repo, revision=self._id.revision, files_metadata=True)
        files = {sibling.rfilename: _remote_file(sibling) for sibling in info.siblings or ()}
        try:
            sides = side_files(files, self._id.repo)
        except OnlyPickles as error:
            raise ModelError(f"{error.message}; {where_converted(api, self._id.repo)}") from error
        snapshot = self._link(sides)
        check_tokenizer(snapshot)
        weights = weight_files(files, snapshot, self._id.repo)
        self._check_space(weights)
        self._progress.stage(f"downloading {self._id}", sum(file.num_bytes for file in weights))
        for file in weights:
            self._fetch_blob(file, str(info.sha))
        return self._link([*sides, *(file.name for file in weights)])

    def _link(self, names: list[str]) -> Path:
        """The snapshot with these files; the client fetches those that aren't among the blobs."""
        from huggingface_hub import snapshot_download

        where: dict[str, Any] = {"revision": self._id.revision, "cache_dir": _cache(), "endpoint": self._endpoint}
        return Path(snapshot_download(self._id.repo, allow_patterns=names, tqdm_class=_no_bar(), **where))

    def _fetch_blob(self, file: RemoteFile, commit: str) -> None:
        """A file among the blobs, where the client's own call then finds it and has nothing to fetch."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        blob = self._blobs / file.etag
        lock = _cache() / ".locks" / self._blobs.parent.name / f"{blob.name}.lock"  # the client's own
        waiting = functools.partial(self._progress.stage, f"waiting for another download of {file.name}", None)
        with exclusive(lock, waiting):
            if blob.exists() or file.num_bytes > MAX_HTTP_BYTES or not ETAG.fullmatch(file.etag):
                return self._progress.advance(file.num_bytes)
            self._blobs.mkdir(parents=True, exist_ok=True)
            url = hf_hub_url(self._id.repo, file.name, revision=commit, endpoint=self._endpoint)
            ResumedDownload(get_session(), url, build_hf_headers(), file, self._progress.advance).into(blob)
        if file.sha256 is not None:
            remember_sha256(blob, self._cache_dir, file.sha256)  # it was computed on the way

    def _check_space(self, weights: list[RemoteFile]) -> None:
        needed = sum(file.num_bytes for file in weights if not (self._blobs / file.etag).exists())
        needed -= sum(part.stat().st_size for part in self._blobs.glob("*.everystep.incomplete"))
        free = shutil.disk_usage(self._blobs.parent).free
        if needed > free:
            raise ModelError(f"{self._id} needs {needed} more bytes in {self._blobs}, where {free} are free")


def _remote_file(sibling: Any) -> RemoteFile:
    """Large files are blobs by SHA-256, small ones by git's own hash."""
    sha256 = None if sibling.lfs is None else str(sibling.lfs["sha256"])
    return RemoteFile(sibling.rfilename, sibling.size or 0, sha256 or str(sibling.blob_id), sha256)


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _no_bar() -> Any:
    """The client draws its own bars unless it is handed a class that draws none."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class NoBar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

    return NoBar
