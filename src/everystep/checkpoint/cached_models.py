"""The models on this machine: those in our own cache, and the hub's.

Owns what is listed of our own cache, and that a damaged entry is one line among the others.  Ignorant of how a list
looks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from everystep.checkpoint.converted import CONVERTER_VERSION, SOURCE, is_whole
from everystep.checkpoint.fields import Fields, read_fields, read_fields_if_there
from everystep.checkpoint.gguf_file import read_gguf
from everystep.checkpoint.hub_list import hub_models
from everystep.checkpoint.listed_model import Kind, ListedModel, files_in, untouched
from everystep.checkpoint.pull import DEFAULT_MODEL, FILE_SHA256
from everystep.errors import ModelError

BUILT = re.compile(r"(?P<key>[0-9a-f]{32})-(?P<weights>\w+)-.+")  # as the OpenVINO runner names its weights
CONVERTED = re.compile(r"(?P<key>[0-9a-f]{32})-v(?P<version>\d+)")
KEY_CHARS = 12  # of a content key, where no name is known


def cached_models(cache_dir: Path) -> list[ListedModel]:
    """Every entry of both caches; an absent cache has none."""
    return [
        *_lines(cache_dir / "models", "*/*.gguf", "file", _file),
        *hub_models(),
        *_lines(cache_dir / "converted", "[!.]*", "converted", _converted),
        *_lines(cache_dir / "built", "[!.]*", "built", _built),
    ]


def _lines(place: Path, pattern: str, kind: Kind, describe: Callable[[Path], tuple[str, str]]) -> Iterator[ListedModel]:
    """``describe`` gives a name and a form, or raises what is wrong with the entry."""
    for path in sorted(place.glob(pattern)) if place.is_dir() else ():
        name, form, problem = path.name, None, None
        with untouched(path) as last_used_s:
            try:
                name, form = describe(path)
            except ModelError as error:
                problem = error.message
            except (OSError, ValueError, KeyError, TypeError):
                problem = "damaged, or of another version"
        num_bytes = sum(file.stat().st_size for file in files_in(path))
        yield ListedModel(
            name=name, kind=kind, form=form, num_bytes=num_bytes, path=path, last_used_s=last_used_s, problem=problem
        )


def _file(path: Path) -> tuple[str, str]:
    metadata = Fields(read_gguf(path, with_vocabulary=False).metadata, str(path))
    return path.parent.name, metadata.text("general.architecture")


def _converted(folder: Path) -> tuple[str, str]:
    match = CONVERTED.fullmatch(folder.name)
    if match is None or not is_whole(folder):
        raise ModelError("damaged; it is made anew when it is needed")
    if int(match["version"]) != CONVERTER_VERSION:
        raise ModelError(f"of converter version {match['version']}; now it is {CONVERTER_VERSION}")
    source = read_fields_if_there(folder / SOURCE)
    return source.text("converted_from", _name_of(match["key"])), read_fields(folder / "config.json").text("model_type")


def _built(folder: Path) -> tuple[str, str]:
    match = BUILT.fullmatch(folder.name)
    if match is None:
        raise ModelError("not one of the runner's folders")
    index = json.loads((folder / "index.json").read_text())
    if (folder / "arrays.bin").stat().st_size != index["num_bytes"]:
        raise ModelError("damaged; it is made anew when it is needed")
    return _name_of(match["key"]), match["weights"]


def _name_of(key: str) -> str:
    """The default model's key is known; others are content only."""
    return DEFAULT_MODEL if FILE_SHA256.startswith(key) else key[:KEY_CHARS]
