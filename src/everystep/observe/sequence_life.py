"""What is remembered of one sequence, from acceptance to its end.

Owns the marks that the hot path leaves; one writer, the observer.  Causes of waiting, seats and steps aren't here:
they are read from the step log when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from everystep.types import FinishReason


@dataclass(slots=True, eq=False)
class SequenceLife:
    """Times in seconds since the server's start.  Step numbers are the step log's."""

    sequence_id: str
    request_id: str
    policy: str
    num_prompt_tokens: int
    arrival_s: float
    accepted_after_step: int  # the last step seen before it came
    is_seated: bool = False
    first_step: int | None = None
    first_step_s: float | None = None
    seated_s: float | None = None  # when its first pass was begun: known also where the pass's end came too late
    num_preemptions: int = 0
    num_output_tokens: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    finish_reason: FinishReason | None = None
    finish_s: float | None = None
    finished_after_step: int | None = None  # the last step seen before its end was told

    @property
    def state(self) -> str:
        if self.finish_reason is not None:
            return "finished"
        return "running" if self.is_seated else "waiting"
