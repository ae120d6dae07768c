"""The nouns that every room speaks of: sequence, row, step plan, step result, event.

Owns their shapes and the two protocols (:class:`Policy`, :class:`Runner`) that meet in the engine.
Ignorant of clocks, models, processes and clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from everystep.sampling_params import SamplingParams


class FinishReason(StrEnum):
    """Why a sequence ended.  Each accepted sequence has exactly one."""

    STOP = "stop"  # end-of-text token, stop token or stop string
    LENGTH = "length"  # max_tokens, the context or the cache is used up
    ABORTED = "aborted"  # the client left or took it back
    TIMEOUT = "timeout"  # a deadline passed
    FAILED = "failed"  # the forward pass or its process failed


class WaitCause(StrEnum):
    """Why a sequence isn't in the next forward pass."""

    ROUND_RUNNING = "round_running"  # static: nobody looks at the queue while a round runs
    NO_SEAT = "no_seat"
    NO_BLOCKS = "no_blocks"
    NO_BUDGET = "no_budget"  # the step's token budget is spent
    BEHIND = "behind"  # somebody of a better rank must go first


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """One prompt (or one of its ``n`` choices) as the scheduler holds it.  One writer: its lane's policy.

    ``token_ids`` are all *known* tokens, prompt first.  ``num_computed_tokens`` of them are in the KV cache.
    A step lets computed chase known; prefill, chunks, decode, resumption and prefix hits are all this case.
    """

    sequence_id: str
    request_id: str
    policy: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    seed: int  # always set; the client's, or one that the engine drew
    eos_token_ids: frozenset[int]
    priority: int = 0  # lower goes first
    arrival_s: float = 0.0
    arrival_index: int = 0  # order of arrival at the engine, ties broken
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prompt tokens that a prefix hit spared
    num_preemptions: int = 0
    block_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def max_total_tokens(self) -> int:
        """Known tokens at its longest possible end."""
        return self.num_prompt_tokens + self.params.max_tokens

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None


class Row(msgspec.Struct, frozen=True):
    """A sequence's share of one step: ``num_new_tokens`` tokens from position ``start`` on.

    ``start`` is the sequence's ``num_computed_tokens`` when the plan was made.  A held row (a finished
    member that keeps its seat until its round ends) has 0 new tokens.
    """

    sequence: Sequence
    seat: int
    start: int
    num_new_tokens: int

    @property
    def end(self) -> int:
        """Context length after the step."""
        return self.start + self.num_new_tokens

    @property
    def samples(self) -> bool:
        """Whether the step draws a token for this row: it reaches the last known token."""
        return self.num_new_tokens > 0 and self.end == self.sequence.num_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Which rows share the next forward pass.  ``rows`` are computed, ``held`` keep a seat without being computed."""

    policy: str
    rows: tuple[Row, ...] = ()
    held: tuple[Row, ...] = ()

    @property
    def num_new_tokens(self) -> int:
        return sum(row.num_new_tokens for row in self.rows)


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token and the natural logarithm of its probability."""

    token_id: int
    logprob: float


class SampledToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The token drawn for one row; ``logprob`` and ``top`` only where the client asked."""

    token_id: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a forward pass gave, by sequence id, never by order.

    ``tokens`` has one entry for each row with ``samples``, unless ``errors`` has the row's failure in words.
    ``step_s`` is set by runners that play a scripted time, else ``None`` and the engine's clock rules.  ``path`` names
    the way through the pass where a runner has several that round differently, so that a replay can take the same.
    """

    tokens: Mapping[str, SampledToken]
    errors: Mapping[str, str] = field(default_factory=dict)
    step_s: float | None = None
    path: str = ""


class TokenEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """News of one sequence: a token, its end, or both.  The last event of a sequence has ``finish_reason``."""

    sequence_id: str
    token: SampledToken | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None  # in words, with FAILED
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting sequence and its cause.

    ``behind`` is a sequence id where the cause is BEHIND; ``needs_blocks`` how many blocks of KV cache the head of the
    line needs where the cause is NO_BLOCKS, ``None`` where it isn't asked before others have given theirs back.
    """

    sequence: Sequence
    why: WaitCause
    behind: str | None = None
    needs_blocks: int | None = None


class Policy(Protocol):
    """Decides which rows share the next forward pass.  Pure: told the time, draws no randomness, does no I/O."""

    name: str
    num_seats: int
    num_preemptions: int  # ever
    num_prefix_hit_tokens: int  # ever; prompt or resumed tokens found in the cache
    last_started: tuple[str, ...]  # got a seat in the last plan, for the first time or again
    last_preempted: tuple[str, ...]  # lost theirs in the last plan

    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the waiting line.  Raises :class:`PromptTooLong` if it can never fit."""

    def abort(self, sequence_id: str, reason: FinishReason = FinishReason.ABORTED) -> bool:
        """End a sequence, waiting or seated, and free its blocks now.  False if it isn't here (any more)."""

    def has_work(self) -> bool:
        """Whether any sequence waits or sits."""

    def plan(self, now_s: float) -> StepPlan:
        """Seat whom the policy seats and say who computes what.  An empty plan means nothing can run now."""

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Move the counters, end who ended, free seats and blocks.  Rows aborted since ``plan`` are skipped."""

    def why_waiting(self) -> tuple[Waiting, ...]:
        """Each waiting sequence with its cause as of the last plan, first in line first.

        The very same tuple while nothing changed, so that an observer needn't look twice.
        """

    def ready_at_s(self) -> float | None:
        """When the lane will run without a message (it waits for company); ``None`` if it has no such time."""


class Runner(Protocol):
    """One forward pass at a time over a paged KV cache.

    A row that fails by itself is named in the result's ``errors``; an exception says nothing of whose fault it was.
    With an attribute ``is_repeatable = True`` a runner promises that rows of a pass that raised may be run again, all
    or some of them, with the outcome that they would have had: whose fault it was is then found out.
    """

    block_size: int  # tokens a block
    kv_block_bytes: int  # bytes of KV cache a block takes over all layers
    vocab_size: int

    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache.  Called once, before ``warm_up``."""

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run the shapes that will come, so that no client pays for a first time."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows: write their KV, draw a token for each row that ``samples``."""

    def close(self) -> None:
        """Free what the runner holds."""
