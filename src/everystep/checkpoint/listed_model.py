"""One line of the list of models on this machine.

Owns :class:`ListedModel`, and what is read of any folder or file for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["file", "hub", "converted", "built"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """``name`` is what ``--model`` takes, where it takes one; ``problem`` says why an entry is of no use.

    ``num_bytes`` is what the entry alone takes.  ``last_used_s`` counts from 1970 and is as true as the file system's
    times of access.
    """

    name: str
    kind: Kind
    form: str | None  # model type, or the precision of weights built for a runner
    num_bytes: int
    path: Path
    last_used_s: float | None
    problem: str | None = None
    suggested_sampling: Mapping[str, float | int] = field(default_factory=dict)


def files_in(place: Path) -> list[Path]:
    """The files of a folder, however deep; of a file itself."""
    return [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]


def bytes_of(place: Path) -> int:
    return sum(path.stat().st_size for path in files_in(place))


def last_used(place: Path) -> float | None:
    """When a file was last read or written; ``None`` where there is none."""
    stats = [path.stat() for path in files_in(place)]
    return max((max(stat.st_atime, stat.st_mtime) for stat in stats), default=None)
