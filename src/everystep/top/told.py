"""What a server tells, as far as it is shown here: the replies of ``/figures``, ``/engine`` and ``/steps``.

Owns their shape.  Fields that aren't shown may come and go.
"""

from __future__ import annotations

import msgspec


class Quantiles(msgspec.Struct, frozen=True):
    """Seconds."""

    p50: float
    p95: float


class SeatSteps(msgspec.Struct, frozen=True):
    """Seats times steps of the window."""

    working: int
    held: int
    empty: int


class LaneFigures(msgspec.Struct, frozen=True):
    """One lane now, and its last seconds."""

    num_running: int
    num_waiting: int
    tokens_per_s: float
    requests_per_s: float
    steps_per_s: float
    seat_steps: SeatSteps
    ttft_s: Quantiles | None = None
    itl_s: Quantiles | None = None
    step_s: Quantiles | None = None
    seats: int | None = None
    state: str | None = None  # the word of a lane that another engine serves


class Totals(msgspec.Struct, frozen=True):
    """Since the server's start."""

    prefix_cache_hit_tokens: int
    preemptions: int


class Figures(msgspec.Struct, frozen=True):
    """The server now.  ``now_s`` is the clock of its steps."""

    server_id: str
    now_s: float
    window_s: int
    is_ready: bool
    reason: str
    last_step: int
    num_worker_restarts: int
    blocks_used: int
    blocks_total: int
    totals: Totals
    lanes: dict[str, LaneFigures]


class Facts(msgspec.Struct, frozen=True):
    """What serves."""

    model: str
    runner: str
    precision: str
    num_threads: int
    block_size: int
    num_blocks: int
    max_model_len: int


class Row(msgspec.Struct, frozen=True):
    """A seat of a step."""

    seat: int
    sequence_id: str
    phase: str  # prefill | decode | held


class Waiting(msgspec.Struct, frozen=True):
    """Who waited when a step was planned."""

    sequence_id: str
    why: str
    waited_s: float
    behind: str | None = None
    needs_blocks: int | None = None


class Step(msgspec.Struct, frozen=True):
    """A forward pass."""

    step: int
    policy: str
    start_s: float
    end_s: float
    rows: list[Row]
    waiting: list[Waiting]
    blocks_used: int
    blocks_total: int


class StepPage(msgspec.Struct, frozen=True):
    """Some steps, oldest first."""

    steps: list[Step]
    next: int
