"""What a replay found, and how it is told to people.

Owns the words.  Ignorant of how a replay is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from everystep.analysis.replay_compare import Seen
from everystep.observe.schedule import Aborted, Submitted

MAX_ROWS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Difference:
    """The first point at which the replayed core did otherwise.  ``line_number`` is the recorded turn's in its file."""

    what: str
    step: int | None  # None where no step ran
    line_number: int
    expected: str
    actual: str
    steps_before: tuple[str, ...] = ()
    inputs_before: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """For a terminal, the context first."""
        if self.steps_before:
            yield "the steps before, the same in both:"
            yield from (f"  {words}" for words in self.steps_before)
        if self.inputs_before:
            yield "the last inputs:"
            yield from (f"  {words}" for words in self.inputs_before)
        yield f"first difference: {self.what} (line {self.line_number} of the recording)"
        yield f"  recorded: {self.expected}"
        yield f"  replayed: {self.actual}"


@dataclass(frozen=True, slots=True)
class Report:
    """How far a replay and its recording agree.  ``num_steps`` and ``num_tokens`` were compared and are equal."""

    num_steps: int
    num_tokens: int
    difference: Difference | None = None
    notes: tuple[str, ...] = ()
    num_segments: int = 1

    @property
    def is_equal(self) -> bool:
        return self.difference is None

    def followed_by(self, other: Report) -> Report:
        """This segment's and the next one's as one."""
        return Report(
            self.num_steps + other.num_steps,
            self.num_tokens + other.num_tokens,
            other.difference,
            (*self.notes, *other.notes),
            self.num_segments + other.num_segments,
        )

    def __str__(self) -> str:
        """For a terminal and for a failing test."""
        counts = f"{self.num_steps} steps and {self.num_tokens} tokens are the same"
        if self.num_segments > 1:
            counts += f", over {self.num_segments} engines"
        lines = [*self.notes, *(self.difference.lines() if self.difference else ()), counts]
        return "\n".join(lines if self.is_equal else [*lines[:-1], f"{counts} before it"])


def describe_input(line: Submitted | Aborted) -> str:
    """An input, on a line."""
    if isinstance(line, Aborted):
        return f"{line.at_s:.6f} s: {line.sequence_id} is ended: {line.reason}"
    return (
        f"{line.at_s:.6f} s: {line.sequence_id} for {line.lane}: {len(line.prompt_ids)} prompt tokens, "
        f"at most {line.params.get('max_tokens')} new, priority {line.priority}"
    )


def describe_step(seen: Seen) -> str:
    """A step, on a line."""
    shown = "; ".join(map(str, seen.rows[:MAX_ROWS_SHOWN]))
    others = len(seen.rows) - MAX_ROWS_SHOWN
    more = f"; and {others} more" if others > 0 else ""
    held = f"; held: {', '.join(map(str, seen.held))}" if seen.held else ""
    return f"step {seen.step}, {seen.lane}, {len(seen.rows)} rows, {seen.blocks} blocks: {shown}{more}{held}"
