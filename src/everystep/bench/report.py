"""The report of a result file: its tables, its lines, its page.

Owns which tables a kind of load has.  Reads the result file alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from everystep.bench import open_tables, tables
from everystep.bench.calibrate_tables import prediction_table
from everystep.bench.results import Result
from everystep.bench.tables import ENGLISH, Table, contender_lines, machine_line, markdown


def is_open(result: Result) -> bool:
    """Whether the loads were open: arrivals at a rate."""
    return bool(result["settings"].get("kind") == "open")


def all_tables(result: Result) -> list[Table]:
    predicted = prediction_table(result)
    return [*(_open_tables(result) if is_open(result) else _closed_tables(result)), *([predicted] if predicted else [])]


def _open_tables(result: Result) -> list[Table]:
    return [open_tables.rates_table(result), open_tables.latency_table(result)]


def _closed_tables(result: Result) -> list[Table]:
    return [tables.seconds_table(result, ENGLISH), tables.rates_table(result, ENGLISH), tables.latency_table(result)]


def day_line(result: Result) -> str:
    """The write-up's last line: what each would answer in a day."""
    return open_tables.day_line(result) if is_open(result) else _closed_day_line(result)


def _closed_day_line(result: Result) -> str:
    """At the largest N."""
    largest = tables.sizes(result)[-1]
    runs = sorted((run for run in result["runs"] if run["n"] == largest), key=lambda run: float(run["requests_per_s"]))
    words = [f"{run['label']} {tables.a_day(run['requests_per_s'])}" for run in runs]
    return f"Requests a day at N = {largest}: {'; '.join(words)}"


def markdown_page(result: Result) -> str:
    """The whole report as a page."""
    parts = [f"# everystep bench: {result['settings']['model']}", machine_line(result)]
    parts.append(f"Load average before the start: {result['environment']['load_average']}")
    parts += [open_tables.load_line(result)] if is_open(result) else []
    for table in all_tables(result):
        parts += [f"## {table.title}", markdown(table)]
    parts += [day_line(result), _list(contender_lines(result))]
    parts += [_list(lines) for lines in (result["absent"], result["notes"]) if lines]
    return "\n\n".join(parts) + "\n"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
