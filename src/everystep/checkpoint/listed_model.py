"""One line of the list of models on this machine.

Owns :class:`ListedModel`, and what is read of any folder or file for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def untouched(place: Path) -> Iterator[float | None]:
    """When the largest file, the weights, was last read or written; and it stays so though it is read in here."""
    weights = max(files_in(place), key=lambda path: path.stat().st_size, default=None)
    if weights is None:
        yield None
        return
    stat = weights.stat()
    yield max(stat.st_atime, stat.st_mtime)
    with contextlib.suppress(OSError):  # somebody else's file
        os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
