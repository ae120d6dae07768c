"""The hub's cache as a list of models: causal ones with safetensors, whole or broken off.

Owns which repositories count.  Others, such as data sets and encoders, are somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from everystep.checkpoint.fields import read_fields, read_fields_if_there
from everystep.checkpoint.hf_outline import is_causal, read_outline
from everystep.checkpoint.hub import HubId, is_whole_snapshot
from everystep.checkpoint.listed_model import ListedModel
from everystep.checkpoint.sampling_hints import sampling_of
from everystep.errors import ModelError


def hub_models() -> Iterator[ListedModel]:
    """By name.  An entry that the hub's own client finds corrupt is listed as that."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, ValueError):  # none yet, or a file in its place
        return
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id):
        if repo.repo_type == "model":
            yield from _of_repository(repo)
    for warning in cache.warnings:
        words = " ".join(str(warning).split())
        yield _corrupt(Path(constants.HF_HUB_CACHE), words)


def _of_repository(repo: Any) -> Iterator[ListedModel]:
    """A line per snapshot, the newest first; a blob that two share counts for the first."""
    counted: set[Path] = set()
    for revision in sorted(repo.revisions, key=lambda one: one.last_modified, reverse=True):
        files = {file.blob_path: file.size_on_disk for file in revision.files if file.blob_path not in counted}
        counted |= files.keys()
        line = _of_snapshot(repo, revision, sum(files.values()))
        if line is not None:
            yield line


def _of_snapshot(repo: Any, revision: Any, num_bytes: int) -> ListedModel | None:
    folder = Path(revision.snapshot_path)
    problem, form, sampling = None, None, {}
    try:
        config = read_fields(folder / "config.json")
        if not is_causal(config):
            return None
        form = config.text("model_type")
        read_outline(config)
        sampling = sampling_of(read_fields_if_there(folder / "generation_config.json").as_dict())
    except ModelError as error:
        problem = error.message
    if not (folder / "config.json").is_file():
        return None
    if problem is None and not is_whole_snapshot(folder):
        problem = _what_is_missing(folder, _name(repo.repo_id, revision))
    return ListedModel(
        name=_name(repo.repo_id, revision),
        kind="hub",
        form=form,
        num_bytes=num_bytes,
        path=folder,
        last_used_s=_last_used(revision.files),
        problem=problem,
        suggested_sampling=sampling,
    )


def _last_used(files: Iterable[Any]) -> float | None:
    """Of the largest file, the weights: the others are read by this list too."""
    largest = max(files, key=lambda file: file.size_on_disk, default=None)
    return None if largest is None else float(largest.blob_last_accessed)


def _what_is_missing(folder: Path, name: str) -> str:
    pickles = any(folder.glob("*.bin"))
    return "pickles, which are never loaded" if pickles else f"incomplete: everystep pull {name} goes on"


def _name(repo_id: str, revision: Any) -> str:
    """As ``--model`` takes it: by branch or tag where one leads here, else by commit."""
    refs = sorted(revision.refs, key=lambda ref: (ref != "main", ref))
    return str(HubId(repo_id, refs[0] if refs else revision.commit_hash))


def _corrupt(cache: Path, words: str) -> ListedModel:
    return ListedModel(
        name="?", kind="hub", form=None, num_bytes=0, path=cache, last_used_s=None, problem=f"corrupt: {words}"
    )
