"""Which runs of a result file are of which kind, who is in them, and the small print that names machine and model.

Owns the reading of the result file for figures.  Ignorant of how anything is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from everystep.bench.figures.look import Result, Run
from everystep.bench.tables import machine_line

Name = tuple[str, str]  # engine, policy
DEFAULT_STATIC_SEATS = 4


def closed_runs(result: Result) -> list[Run]:
    """N prompts at once."""
    return [run for run in result["runs"] if run["rate"] is None]


def open_runs(result: Result) -> list[Run]:
    """Arrivals at a rate, lowest rate first."""
    return sorted((run for run in result["runs"] if run["rate"] is not None), key=lambda run: float(run["rate"]))


def names_of(runs: Iterable[Run]) -> list[Name]:
    """In the order of the runs."""
    return list(dict.fromkeys((str(run["engine"]), str(run["policy"])) for run in runs))


def runs_of(runs: Iterable[Run], name: Name) -> list[Run]:
    """One contender's."""
    return [run for run in runs if (run["engine"], run["policy"]) == name]


def static_seats(result: Result) -> int:
    """Seats of a static round, as the server was given them."""
    return int(result["settings"].get("server", {}).get("static_batch_size", DEFAULT_STATIC_SEATS))


def small_print(result: Result, *more: str) -> Sequence[str]:
    """The model, what computed it, what else there is to say, and the machine: a figure gets about by itself."""
    ours = {one["about"]: None for one in result.get("contenders", ()) if one["engine"] == "everystep"}
    model = f"model {Path(str(result['settings']['model'])).name}"
    return ["; ".join([model, *ours, *more]), machine_line(result)]


def closed_load(result: Result) -> str:
    """What every prompt of a closed load was."""
    settings = result["settings"]
    return f"prompts of {settings['prompt_tokens']} tokens, {settings['max_tokens']} generated for each"
