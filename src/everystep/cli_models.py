"""``everystep pull``, ``models`` and ``convert``: the models on this machine.

Owns their flags and how a list of models looks.  Ignorant of where models come from and of what is in them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everystep.config import Settings
from everystep.flags import Command, given_flags, setting_flags
from everystep.settings_sources import load_settings

if TYPE_CHECKING:
    from everystep.checkpoint import ListedModel

COLUMNS = ("NAME", "KIND", "FORM", "SIZE", "LAST USED", "WHERE")
NUMBERS = ("SIZE",)  # columns that are right-aligned
UNITS = ("B", "KB", "MB", "GB", "TB")


def cache_flags(command: Command) -> Command:
    """The flags of a command that works on the cache."""
    config = click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE.toml", help="settings as TOML keys"
    )
    return setting_flags(["cache_dir", "log_level"])(config(command))


@click.command()
@click.argument("name", required=False, default=Settings.model_fields["model"].default)
@cache_flags
@click.pass_context
def pull(context: click.Context, /, config: Path | None, name: str, **flags: Any) -> None:
    """Fetch a model into the cache and print where it lies.

    NAME: smollm2-135m (the default), or a hub id, owner/name or owner/name@revision. What broke off goes on.
    """
    cache_dir = _cache_dir(context, config, flags)
    from everystep.checkpoint import pull as pull_model
    from everystep.progress import ProgressBar

    with ProgressBar() as bar:
        path = pull_model(name, cache_dir, bar)
    print(path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="a JSON object: the models, and their bytes in all")
@cache_flags
@click.pass_context
def models(context: click.Context, /, config: Path | None, as_json: bool, **flags: Any) -> None:
    """List the models on this machine: our own cache, and the hub's.

    Kinds: file (as fetched), hub (a snapshot in the hub's cache), converted (a Hugging Face folder made of a file),
    built (weights in the form of a runner). The last two are made anew when they are needed.
    """
    cache_dir = _cache_dir(context, config, flags)
    from everystep.checkpoint import cached_models

    found = cached_models(cache_dir)
    total = sum(model.num_bytes for model in found)
    if as_json:
        print(json.dumps({"models": [_as_json(model) for model in found], "num_bytes": total}, indent=1))
        return
    if found:
        print("\n".join(_table([COLUMNS, *map(_row, found)])))
    print(f"{len(found)} {'entry' if len(found) == 1 else 'entries'}, {size_text(total)} in all")


@click.command()
@click.argument("name", required=False, default=Settings.model_fields["model"].default)
@click.option("--to", type=click.Choice(["hf"]), default="hf", show_default=True, help="hf: a Hugging Face folder")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="a new folder  [default: in the cache]")
@cache_flags
@click.pass_context
def convert(context: click.Context, /, config: Path | None, name: str, to: str, out: Path | None, **flags: Any) -> None:
    """Make a Hugging Face folder of a GGUF model, in float32, and print where it lies.

    Runners that need one make it themselves, once; this is for other programs.
    """
    cache_dir = _cache_dir(context, config, flags)
    from everystep.checkpoint import open_checkpoint
    from everystep.progress import ProgressBar

    with ProgressBar() as bar:
        path, words = _converted(open_checkpoint(name, cache_dir, bar), cache_dir, out, bar)
    if words:
        print(words, file=sys.stderr)
    print(path)


def _converted(checkpoint: Any, cache_dir: Path, out: Path | None, bar: Any) -> tuple[Path, str]:
    """The folder, and what is to be said of it."""
    from everystep.checkpoint import convert_into, converted_folder, hf_folder, is_hf_folder, is_whole
    from everystep.errors import ModelError

    if is_hf_folder(checkpoint):
        if out is not None:
            raise ModelError(f"{checkpoint.name} is a Hugging Face folder already: {checkpoint.path}")
        return Path(checkpoint.path), f"{checkpoint.name} is a Hugging Face folder and needs no conversion"
    if out is not None:
        convert_into(checkpoint, out, bar)
        return out, ""
    is_there = is_whole(converted_folder(checkpoint, cache_dir))
    return hf_folder(checkpoint, cache_dir, bar), f"{checkpoint.name} was converted already" if is_there else ""


def _cache_dir(context: click.Context, config: Path | None, flags: dict[str, Any]) -> Path:
    settings = load_settings(given_flags(flags), os.environ, config)
    context.meta["everystep.debug"] = settings.log_level == "debug"
    from everystep.checkpoint import default_cache_dir

    return settings.cache_dir or default_cache_dir()


def _row(model: ListedModel) -> tuple[str, ...]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.last_used_s)) if model.last_used_s else "-"
    where = f"{model.path}{f'  ({model.problem})' if model.problem else ''}"
    return (model.name, model.kind, model.form or "-", size_text(model.num_bytes), used, where)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the last one isn't filled up."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    aligned = [
        [
            cell.rjust(width) if name in NUMBERS else cell.ljust(width)
            for name, cell, width in zip(COLUMNS, row, widths, strict=True)
        ]
        for row in rows
    ]
    return ["  ".join(cells).rstrip() for cells in aligned]


def size_text(num_bytes: int) -> str:
    """In units of a thousand, as disks are sold and the progress bar counts."""
    power = 0
    size = float(num_bytes)
    while size >= 1000 and power < len(UNITS) - 1:
        size /= 1000
        power += 1
    return f"{num_bytes} B" if power == 0 else f"{size:.1f} {UNITS[power]}"


def _as_json(model: ListedModel) -> dict[str, Any]:
    return {**dataclasses.asdict(model), "path": str(model.path), "is_usable": model.problem is None}
