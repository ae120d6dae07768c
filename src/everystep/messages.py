"""What crosses between the API process and the worker, and between a handler and the engine client.

Owns the frozen messages.  Ignorant of how they are encoded or sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from everystep.errors import EverystepError
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, SampledToken, TokenEvent


class FailureKind(StrEnum):
    """Whose fault a sequence's own failure is, and so what its client is told."""

    REFUSED = "refused"  # the request's
    UNAVAILABLE = "unavailable"  # nobody's: no room, or not there
    FAILED = "failed"


# --- API process → worker ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Submit:
    """One sequence for a lane.  ``arrival_s`` is in seconds since the server's start."""

    sequence_id: str
    request_id: str
    policy: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    eos_token_ids: tuple[int, ...]
    priority: int
    arrival_s: float


@dataclass(frozen=True, slots=True)
class SubmitAll:
    """A request's sequences in one message: they arrive together, so that one round may take them all."""

    submits: tuple[Submit, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """End a sequence for ``reason`` (stop string seen, client gone, deadline passed)."""

    sequence_id: str
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Leave the loop and exit."""


# --- worker → API process ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the worker is ready with; its first message."""

    model: str
    runner: str
    precision: str
    num_threads: int
    block_size: int
    num_blocks: int
    kv_block_bytes: int
    max_model_len: int
    seats: dict[str, int]  # by lane
    start_up_s: dict[str, float]  # part of the start → seconds it took


# The three parts of the step log are made by the hundred in every step: as structs encoded by position they cost a
# tenth of what frozen dataclasses do.
class StepRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One seat of one step, as CONTRACT's ``/steps`` shows it."""

    seat: int
    sequence_id: str
    request_id: str
    phase: str  # prefill | decode | held
    new_tokens: int
    context_tokens: int
    finish: str | None = None


class WaitingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One waiting sequence of one step; how long it has waited follows from ``arrival_s``."""

    sequence_id: str
    request_id: str
    why: str
    arrival_s: float
    behind: str | None = None
    needs_blocks: int | None = None


class StepRecord(msgspec.Struct, frozen=True, array_like=True):
    """One forward pass: who sat where, who waited and why.  Times in seconds since the server's start."""

    step: int
    policy: str
    start_s: float
    end_s: float
    shape: tuple[int, int]  # the padded rectangle it would have been: rows × longest new part
    rows: tuple[StepRow, ...]
    blocks_used: int  # while it ran
    blocks_total: int


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The numbers of a step that metrics need, without decoding the record."""

    step: int
    policy: str
    start_s: float
    end_s: float
    num_working: int
    num_held: int
    num_empty: int
    num_new_tokens: int
    num_waiting: int
    num_preemptions: int  # in this step
    num_prefix_hit_tokens: int  # in this step
    blocks_used: int  # once the step is applied: those of rows that it ended are free again
    blocks_total: int


@dataclass(frozen=True, slots=True)
class StepOutput:
    """All that leaves the worker for one step.

    ``record`` is an encoded :class:`StepRecord`; ``waiting`` an encoded line of :class:`WaitingRow`, or ``None``
    when the lane's line and causes are what they were at the lane's step before (so that both are kept, not
    parsed, on the hot path).  ``started`` are the sequences that got a seat in this step, for the first time or again.
    """

    summary: StepSummary
    record: bytes
    waiting: bytes | None
    started: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    events: tuple[TokenEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class EventsOnly:
    """What happened without a step: refusals, aborts; and the blocks of KV cache that are in use after it."""

    events: tuple[TokenEvent, ...]
    blocks_used: int


@dataclass(frozen=True, slots=True)
class Seated:
    """A forward pass begins, and these have a seat in it, for the first time or again.

    The pass may take longer than a client would wait for a seat, so its output would say it too late.
    """

    sequence_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """The worker's last word when it can't go on."""

    message: str


# --- vLLM's side → API process --------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SequenceStart:
    """vLLM has had the sequence in a forward pass; ``at_s`` is when it was first scheduled."""

    sequence_id: str
    at_s: float


@dataclass(frozen=True, slots=True)
class SequenceFailure:
    """A sequence ends alone, by no doing of its client's or by a request that vLLM doesn't take."""

    sequence_id: str
    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class VllmLoad:
    """vLLM's own scheduler counts.  The last two only grow while one vLLM lives."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float  # share of its blocks, 0 to 1
    num_preemptions: int
    num_prefix_hit_tokens: int


@dataclass(frozen=True, slots=True)
class VllmNews:
    """What has come of vLLM since the last news, in this order; without any of it, a sign of life.

    ``beat_s``: when vLLM last got on, in seconds since the server's start; now, where it has no work.
    """

    beat_s: float
    started: tuple[SequenceStart, ...] = ()
    events: tuple[TokenEvent, ...] = ()
    failures: tuple[SequenceFailure, ...] = ()
    load: VllmLoad | None = None


# --- handler ↔ engine client ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a handler asks of the engine: some prompts, one set of parameters, one lane.

    Each prompt yields ``params.n`` choices.  Choice ``c`` of prompt ``p`` has index ``p * n + c``.  ``max_tokens``, one
    number a prompt, stands in the place of that of ``params``.
    """

    request_id: str
    prompts: tuple[tuple[int, ...], ...]  # token ids
    params: SamplingParams
    policy: str
    priority: int = 0
    timeout_s: float | None = None  # None: the server's --request-timeout
    max_tokens: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        assert self.max_tokens is None or len(self.max_tokens) == len(self.prompts)

    def params_of(self, prompt: int) -> SamplingParams:
        """What holds for the prompt of this index."""
        if self.max_tokens is None:
            return self.params
        return replace(self.params, max_tokens=self.max_tokens[prompt])


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """News of one choice, as text: what a stream shows next.

    ``text`` may be empty while a character or a possible stop string is incomplete.  ``tokens`` are the tokens
    whose arrival this delta reports.  The last delta of a choice has ``finish_reason``.
    """

    index: int
    sequence_id: str
    text: str
    tokens: tuple[SampledToken, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None  # the stop string or stop token that ended it
    error: str | None = None  # in words, where the end is a failure or a deadline
    failure: EverystepError | None = None  # the same, typed: what a handler raises
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What health endpoints say.  ``reason`` is for people where ``is_ready`` is false.

    ``lanes``: each lane's word, ``ready`` or why not, where not all lanes are served by the same engine.
    """

    is_live: bool
    is_ready: bool
    reason: str = ""
    info: EngineInfo | None = field(default=None)
    lanes: dict[str, str] = field(default_factory=dict)
