"""One request's life, read from its marks and the steps it saw: causes of waiting, seat, steps, tokens, end.

Owns the derivation and the shape that ``/requests/{id}`` shows.  Ignorant of where both are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everystep.messages import StepRow, WaitingRow
from everystep.observe.sequence_life import SequenceLife
from everystep.observe.step_pack import Step

ARRIVING = "arriving"  # before the first plan that could see it
FORGOTTEN = "forgotten"  # before the oldest step remembered


def tell_request(
    lives: Sequence[SequenceLife], steps: Iterable[Step], is_complete: bool, now_s: float
) -> dict[str, Any]:
    """The request as a JSON object.  ``is_complete``: the steps reach back to its arrival."""
    stories = [SequenceStory(life, FORGOTTEN if not is_complete else ARRIVING) for life in lives]
    _read_steps(stories, steps)
    return {
        "request_id": lives[0].request_id,
        "policy": lives[0].policy,
        "arrival_s": lives[0].arrival_s,
        "is_finished": all(life.finish_reason is not None for life in lives),
        "is_complete": is_complete,
        "sequences": [story.tell(now_s) for story in stories],
    }


def _read_steps(stories: Sequence[SequenceStory], steps: Iterable[Step]) -> None:
    """Let each story see each step of its lane, until all have ended and left their seats."""
    by_id = {story.life.sequence_id: story for story in stories}
    policy = stories[0].life.policy
    for step in steps:
        if step.record.policy != policy:
            continue
        rows = [row for row in step.record.rows if row.sequence_id in by_id]
        for row in rows:
            by_id[row.sequence_id].sit(row, step)
        for waiting in step.waiting:
            if waiting.sequence_id in by_id:
                by_id[waiting.sequence_id].wait(waiting, step)
        if not rows and all(story.has_ended_before(step) for story in stories):
            return


class SequenceStory:
    """What the steps say of one sequence, step after step."""

    def __init__(self, life: SequenceLife, first_cause: str) -> None:
        self.life = life
        self._seats: list[int] = []
        self._steps: list[int] = []  # those that computed it
        self._num_held_steps = 0
        self._causes: list[dict[str, Any]] = []
        self._cause: tuple[str, str | None] | None = (first_cause, None)
        self._cause_since_s = life.arrival_s

    def has_ended_before(self, step: Step) -> bool:
        return self.life.finished_after_step is not None and step.record.step > self.life.finished_after_step

    def sit(self, row: StepRow, step: Step) -> None:
        """It has a seat in this step."""
        self._end_cause(step.record.start_s, None)
        if not self._seats or self._seats[-1] != row.seat:
            self._seats.append(row.seat)
        if row.new_tokens:
            self._steps.append(step.record.step)
        else:
            self._num_held_steps += 1

    def wait(self, waiting: WaitingRow, step: Step) -> None:
        """It has none, and why; so it stays until its lane's next step."""
        cause = (waiting.why, waiting.behind)
        if cause != self._cause:
            self._end_cause(step.record.start_s, cause)

    def tell(self, now_s: float) -> dict[str, Any]:
        life = self.life
        end_s = life.finish_s if life.finish_s is not None else now_s
        if life.first_step is None and life.first_step_s is not None:  # vLLM's: it tells when, but no steps
            self._end_cause(life.first_step_s, None)
        self._end_cause(end_s, self._cause)
        return {
            "sequence_id": life.sequence_id,
            "state": life.state,
            "prompt_tokens": life.num_prompt_tokens,
            "queue": self._causes,
            "queue_s": _span(life.arrival_s, life.first_step_s if life.first_step_s is not None else end_s),
            "seats": self._seats,
            "first_step": life.first_step,
            "last_step": self._steps[-1] if self._steps else None,
            "num_steps": len(self._steps),
            "num_held_steps": self._num_held_steps,
            "num_preemptions": life.num_preemptions,
            "output_tokens": life.num_output_tokens,
            "first_token_s": life.first_token_s,
            "last_token_s": life.last_token_s,
            "ttft_s": None if life.first_token_s is None else _span(life.arrival_s, life.first_token_s),
            "finish": life.finish_reason,
            "finish_s": life.finish_s,
            "e2e_s": None if life.finish_s is None else _span(life.arrival_s, life.finish_s),
        }

    def _end_cause(self, at_s: float, next_cause: tuple[str, str | None] | None) -> None:
        if self._cause is not None and at_s > self._cause_since_s:
            why, behind = self._cause
            duration_s = _span(self._cause_since_s, at_s)
            self._causes.append({"why": why, "behind": behind, "from_s": self._cause_since_s, "duration_s": duration_s})
        self._cause, self._cause_since_s = next_cause, max(at_s, self._cause_since_s)


def _span(from_s: float, to_s: float) -> float:
    return round(max(0.0, to_s - from_s), 6)
