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

StepLogs = Mapping[str, Sequence[Mapping[str, Any]]]  # lane → /steps entries, oldest first


def _say_nothing(words: str) -> None:
    """The default of ``say``."""


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_figures(
    result: Mapping[str, Any], out: Path, steps: StepLogs | None = None, say: Callable[[str], None] = _say_nothing
) -> list[Path]:
    """Draw ``bench.json``'s content and the lanes' step logs into the folder ``out``; the files written.

    Figures without data are left out, in one line to ``say``.  Raises :class:`EverystepError` without matplotlib.
    """
    return draw_all(result, out, {"seats": steps or {}}, say)


def draw_all(
    result: Mapping[str, Any],
    out: Path,
    step_logs: Mapping[str, StepLogs],
    say: Callable[[str], None] = _say_nothing,
) -> list[Path]:
    """As :func:`draw_figures`, with a figure of seats for each of ``step_logs``, by the figure's name."""
    if not can_draw():
        raise EverystepError(NEEDS_MATPLOTLIB)
    from everystep.bench.figures.draw import draw

    return draw(dict(result), out, step_logs, say)


def seats_by_load(files: Mapping[str, StepLogs]) -> dict[str, dict[str, Sequence[Mapping[str, Any]]]]:
    """The benchmark's ``steps-LANE-LOAD.json``, put together by load: the lanes of a load share a figure.

    ``{"steps-static-16.json": {"static": […]}}`` gives ``{"seats-16": {"static": […]}}``.
    """
    figures: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {}
    for name, logs in files.items():
        lane, _, load = name.removeprefix("steps-").removesuffix(".json").rpartition("-")
        (figures.setdefault(f"seats-{load}", {})[lane],) = logs.values()
    return figures or {"seats": {}}
