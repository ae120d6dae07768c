"""Figures and causes as people say them.

Owns the words.  Ignorant of terminals.
"""

from __future__ import annotations

from everystep.top.looks import short_name
from everystep.top.told import Quantiles, SeatSteps, Step, Waiting


def duration(seconds: float) -> str:
    """``12.3 s``, ``340 ms``, ``4.2 ms``."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"


def quantiles(name: str, values: Quantiles) -> str:
    """Median and 95th percentile."""
    return f"{name} p50 {duration(values.p50)} p95 {duration(values.p95)}"


def counted(count: int, thing: str) -> str:
    """``1 seat``, ``2,048 seats``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def shares(seats: SeatSteps) -> str:
    """What the seats did, of all seat-steps of the window; empty without any."""
    total = seats.working + seats.held + seats.empty
    if not total:
        return ""
    return f"seats {seats.working / total:.0%} working, {seats.held / total:.0%} held, {seats.empty / total:.0%} empty"


def cause(waiting: Waiting, step: Step, num_seats: int) -> str:
    """Why a sequence waits, as of the step."""
    match waiting.why:
        case "round_running":
            rows = counted(sum(row.phase != "held" for row in step.rows), "row")
            return f"round running: {rows} still generating"
        case "no_seat":
            return f"no seat free: all {num_seats} taken"
        case "no_blocks":
            return _blocks(waiting.needs_blocks, step.blocks_total - step.blocks_used)
        case "no_budget":
            return "the token budget of this step is spent"
        case "behind":
            return f"behind {short_name(waiting.behind or '?')}"
        case other:
            return other


def _blocks(needs: int | None, free: int) -> str:
    if needs is None:
        return "no block free: running sequences needed them"
    if free < needs:
        return f"no block free: needs {needs:,}, {free:,} free"
    return f"needs {needs:,} blocks; the {free:,} free ones are kept for another lane, whose turn came first"
