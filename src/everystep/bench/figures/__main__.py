"""Draw the figures of a results folder again: ``python -m everystep.bench.figures results/ [--steps FILE]``.

Owns the reading of files.  Measures nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from everystep.bench.figures import StepLogs, draw_all, seats_by_load
from everystep.errors import EverystepError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m everystep.bench.figures", description=__doc__)
    parser.add_argument("results", type=Path, help="folder with bench.json and steps-*.json; draws into its figures/")
    parser.add_argument("--steps", type=Path, help='step logs to draw instead: {"lane": [step, …], …}')
    given = parser.parse_args()
    try:
        result = _read(given.results / "bench.json")
        files = draw_all(result, given.results / "figures", _step_logs(given.results, given.steps), say=print)
    except EverystepError as error:
        raise SystemExit(f"everystep: {error.message}") from error
    for path in files:
        print(path)


def _step_logs(folder: Path, steps: Path | None) -> dict[str, StepLogs]:
    if steps is not None:
        return {"seats": _read(steps)}
    return dict(seats_by_load({path.name: _read(path) for path in sorted(folder.glob("steps-*.json"))}))


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise EverystepError(f"{path} can't be read: {error}") from error


if __name__ == "__main__":
    main()
