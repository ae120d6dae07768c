"""How a download looks in a terminal: a bar per stage, or a line per stage where nobody watches.

Owns the bar.  Ignorant of what is fetched.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class ProgressBar:
    """Told stages and bytes, as :class:`everystep.checkpoint.Progress` says.  On standard error: output is the path."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_watched = console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=console, disable=not self._is_watched)
        self._task: TaskID | None = None

    def stage(self, words: str, total: int | None) -> None:
        """A new stage of ``total`` bytes begins; ``None`` where nobody knows how many."""
        self._finish_stage()
        if not self._is_watched:
            print(words, file=sys.stderr, flush=True)
        self._task = self._bars.add_task(words, total=total)

    def advance(self, num_bytes: int) -> None:
        """So many more bytes of the stage are done."""
        assert self._task is not None, "bytes before a stage"
        self._bars.advance(self._task, num_bytes)

    def _finish_stage(self) -> None:
        """A stage of unknown length pulses until the next begins."""
        if self._task is not None and self._bars.tasks[self._task].total is None:
            self._bars.update(self._task, total=1, completed=1)

    def __enter__(self) -> ProgressBar:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish_stage()
        self._bars.stop()
