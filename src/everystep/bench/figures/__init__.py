"""The benchmark's figures: SVG and PNG from a result file and from step logs.

Owns what is drawn and how it looks.  Reads no server and measures nothing, so any figure can be made again.  Needs
matplotlib, which is loaded by the first figure.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from everystep.errors import EverystepError

NEEDS_MATPLOTLIB = "figures need matplotlib: pip install 'everystep[bench]'"


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_figures(
    result: Mapping[str, Any],
    out: Path,
    steps: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> list[Path]:
    """Draw ``bench.json``'s content and, by lane, ``/steps`` entries into the folder ``out``; the files written.

    A figure without data is left out, in one line to ``say``.  Raises :class:`EverystepError` without matplotlib.
    """
    if not can_draw():
        raise EverystepError(NEEDS_MATPLOTLIB)
    from everystep.bench.figures.draw import draw

    return draw(dict(result), out, steps or {}, say)
