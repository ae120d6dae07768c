"""Draw the figures of a results folder again: ``python -m everystep.bench.figures results/ [--steps FILE]``.

Owns the reading of files.  Measures nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from everystep.bench.figures import draw_figures
from everystep.errors import EverystepError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everystep.bench.figures", description=__doc__)
    parser.add_argument("results", type=Path, help="folder with bench.json; figures go into its figures/")
    parser.add_argument("--steps", type=Path, help='{"lane": [step, …]}  [default: steps.json in the folder, if any]')
    given = parser.parse_args()
    try:
        result = _read(given.results / "bench.json")
        steps = read_steps(given.steps or given.results / "steps.json", is_needed=given.steps is not None)
        files = draw_figures(result, given.results / "figures", steps, say=print)
    except EverystepError as error:
        raise SystemExit(f"everystep: {error.message}") from error
    for path in files:
        print(path)


def read_steps(path: Path, *, is_needed: bool) -> dict[str, list[dict[str, Any]]]:
    """Step logs by lane; none where the file isn't there and needn't be."""
    return _read(path) if is_needed or path.exists() else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise EverystepError(f"{path} can't be read: {error}") from error


if __name__ == "__main__":
    main()
