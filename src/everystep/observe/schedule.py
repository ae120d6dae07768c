"""The lines of a recorded schedule: what a core took in and what it did, in the order in which it happened.

Owns the format, described in ``docs/replaying.md``: JSONL, one of the structs below a line, told apart by ``"line"``.
What arrives during a forward pass stands between the pass's ``plan`` and its ``step``; all else stands before the plan
that could first know of it.  A plan without a step is a pass that its process didn't survive.  Sequences are numbered
in the order of their submission, as rows repeat them often.  Ignorant of files and of what decided.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everystep.messages import Abort, StepOutput, Submit
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, StepPlan

SCHEMA = 1


class Header(msgspec.Struct, frozen=True, tag_field="line", tag="header"):
    """The first line of a segment, one per core: all that its decisions and its tokens depend on.  No key, no address.

    ``settings`` are those of :class:`everystep.config.Settings` that decide; ``model`` and below are what came of them.
    """

    schema: int
    everystep: str  # version
    settings: dict[str, Any]
    content_key: str  # hex; of the model's files
    runner: str
    precision: str
    num_threads: int
    cpu: str  # model name; tokens are promised on the same kind only
    block_size: int
    num_blocks: int
    max_model_len: int
    vocab_size: int
    seats: dict[str, int]  # by lane
    first_step: int


class Submitted(msgspec.Struct, frozen=True, tag_field="line", tag="submit", omit_defaults=True):
    """A sequence joined its lane's line.  Times are seconds since the server's start."""

    n: int  # its number from here on
    at_s: float  # when the core took it in
    arrival_s: float  # when the server took it in
    sequence_id: str
    request_id: str
    lane: str
    prompt_ids: tuple[int, ...]
    params: dict[str, Any]  # of SamplingParams: max_tokens, and those that aren't the default
    seed: int
    eos_token_ids: tuple[int, ...] = ()
    priority: int = 0

    def message(self) -> Submit:
        """What the core was given.  Raises :class:`InvalidParameter` or ``msgspec.ValidationError``."""
        return Submit(
            sequence_id=self.sequence_id,
            request_id=self.request_id,
            policy=self.lane,
            prompt_ids=self.prompt_ids,
            params=msgspec.convert(self.params, SamplingParams, str_keys=True),
            seed=self.seed,
            eos_token_ids=self.eos_token_ids,
            priority=self.priority,
            arrival_s=self.arrival_s,
        )


class Refused(msgspec.Struct, frozen=True, tag_field="line", tag="refused"):
    """The lane didn't take the sequence of the line before."""

    n: int
    error: str


class Aborted(msgspec.Struct, frozen=True, tag_field="line", tag="abort"):
    """A sequence was ended from outside.  ``was_there``: it had neither ended nor been refused before."""

    at_s: float
    sequence_id: str
    reason: FinishReason
    was_there: bool


class PlannedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row that is computed: ``num_new_tokens`` from position ``start`` on."""

    n: int
    seat: int
    start: int
    num_new_tokens: int


class HeldRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A finished sequence that keeps its seat."""

    n: int
    seat: int


class Planned(msgspec.Struct, frozen=True, tag_field="line", tag="plan", omit_defaults=True):
    """A forward pass begins.  ``now_s`` is the time that the lanes were told."""

    step: int
    now_s: float
    lane: str
    rows: tuple[PlannedRow, ...]  # in the order of the plan
    blocks: int  # in use, after the plan
    held: tuple[HeldRow, ...] = ()


class Token(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A token drawn for a sequence."""

    n: int
    token_id: int


class End(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence ended with this step; ``error`` in words where it failed."""

    n: int
    reason: FinishReason
    error: str | None = None


class Stepped(msgspec.Struct, frozen=True, tag_field="line", tag="step", omit_defaults=True):
    """What came of the plan before.  ``tokens`` and ``ends`` are those that clients were told of."""

    end_s: float
    tokens: tuple[Token, ...] = ()
    ends: tuple[End, ...] = ()
    preempted: tuple[
        str, ...
    ] = ()  # sequence ids; by this plan, or by plans since the lane's last that came to no step
    path: str = ""  # the runner's way through the pass, where it has several that round differently


class Idled(msgspec.Struct, frozen=True, tag_field="line", tag="idle"):
    """Lanes had work and none could run: a static round waits for company."""

    now_s: float


class Broke(msgspec.Struct, frozen=True, tag_field="line", tag="broke"):
    """The core itself failed, in planning at ``now_s`` or, behind a plan, in applying what the pass gave."""

    now_s: float
    error: str


Line = Header | Submitted | Refused | Aborted | Planned | Stepped | Idled | Broke


class Recorder:
    """Who is told what a core takes in and does, by the core, in order.  This one listens to nothing.

    ``where`` the record is, for people; empty where there is none.
    """

    where = ""

    def submitted(self, message: Submit, at_s: float) -> None: ...

    def refused(self, message: Submit, error: str) -> None: ...

    def aborted(self, message: Abort, at_s: float, was_there: bool) -> None: ...

    def planned(self, step: int, now_s: float, plan: StepPlan, blocks: int) -> None: ...

    def stepped(self, output: StepOutput, path: str) -> None: ...

    def idled(self, now_s: float) -> None: ...

    def broke(self, now_s: float, error: BaseException) -> None: ...

    def close(self) -> None: ...


SILENT = Recorder()
