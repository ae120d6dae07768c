"""What a terminal shows: a bar while contenders take turns, tables at the end.

Owns the look.  Words and the bar go to standard error, tables to standard output.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from everystep.bench.tables import Table

REDRAWS_PER_S = 2  # the bar is drawn by the client, on the machine that is measured


class Bar:
    """Turns done, of all.  Where nobody watches, lines only."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_watched = console.is_terminal
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._progress = Progress(
            *columns, console=console, disable=not self._is_watched, refresh_per_second=REDRAWS_PER_S
        )
        self._task = self._progress.add_task("starting", total=None)
        self._has_begun = False

    def total(self, num_turns: int) -> None:
        self._progress.update(self._task, total=num_turns)

    def fewer(self, num_turns: int) -> None:
        """Some turns won't be taken."""
        total = self._progress.tasks[0].total
        self._progress.update(self._task, total=None if total is None else total - num_turns)

    def turn(self, words: str) -> None:
        """A turn begins; the one before it is done."""
        self._progress.update(self._task, description=words, advance=1 if self._has_begun else 0)
        self._has_begun = True

    def say(self, words: str) -> None:
        """A line that stays."""
        if self._is_watched:
            self._progress.console.print(words, highlight=False, markup=False)
        else:
            print(words, file=sys.stderr, flush=True)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._progress.update(self._task, description="done", advance=1)
        self._progress.stop()


def show(tables: list[Table]) -> None:
    """As wide as the terminal allows; a pipe gets the full width."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for table in tables:
        shown = RichTable(title=table.title, title_justify="left")
        for number, head in enumerate(table.head):
            shown.add_column(head, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
