"""``everystep replay``: its flags, and its verdict as an exit status.

Owns what may be asked for and that 0 means equal, 1 different.  Ignorant of how a replay is done.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everystep.errors import UnsupportedOption
from everystep.flags import given_flags, setting_flags

if TYPE_CHECKING:
    from everystep.analysis.replay_report import Report

DIFFERENT = 1
OVERRIDES = ["model", "runner", "precision", "deterministic", "device", "threads", "cache_dir"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.jsonl")
@click.option("--schedule-only", is_flag=True, help="who sat where, on the recorded tokens; needs no model")
@click.option("--json", "as_json", is_flag=True, help="print the report as JSON")
@setting_flags(OVERRIDES)
@click.pass_context
def replay(context: click.Context, /, file: Path, schedule_only: bool, as_json: bool, **flags: Any) -> None:
    """Replay what serve --record wrote: the same arrivals at the same steps must give the same steps and tokens.

    Exit status 0 if they do, 1 if not: then the first difference is shown with what led to it. Settings are the
    recorded ones; a flag replaces one of them.
    """
    changes = given_flags(flags)
    if schedule_only and changes:
        raise UnsupportedOption(f"--schedule-only opens no model: {', '.join(sorted(changes))} would change nothing")
    from everystep.schedule_replay import replay_engine, replay_schedule

    report = replay_schedule(file) if schedule_only else replay_engine(file, changes)
    click.echo(_as_json(report) if as_json else str(report))
    if not report.is_equal:
        context.exit(DIFFERENT)


def _as_json(report: Report) -> str:
    return json.dumps({"is_equal": report.is_equal, **asdict(report)}, indent=1, ensure_ascii=False)
