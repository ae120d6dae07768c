"""Replay: drives a core through what was recorded, and finds the first point where it decides otherwise.

Owns the order in which recorded inputs, times and looks are given to the core, and the comparison.  A core is whatever
has the four methods of :class:`Core`; ignorant of runners and processes.  The clock is the recording's.

A :class:`Playback` is made first, since the core wants its clock and its ``drain`` when it is made::

    playback = Playback()
    core = EngineCore(…, now_s=playback.now_s, drain=playback.drain, first_step=header.first_step)
    report = playback.play(core, turns)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from everystep.analysis.replay_compare import Seen, first_difference, recorded, replayed
from everystep.analysis.replay_report import Difference, Report, describe_input, describe_step
from everystep.messages import Abort, StepOutput, Submit
from everystep.observe.schedule import Aborted, Broke, Idled, Planned, Refused, Stepped, Submitted
from everystep.observe.schedule_reader import Input, Turn
from everystep.types import FinishReason, TokenEvent

NUM_CONTEXT_STEPS = 3
NUM_CONTEXT_INPUTS = 6


class Core(Protocol):
    """What is replayed: :class:`everystep.engine.core.EngineCore`, or anything that is driven alike."""

    def submit(self, message: Submit) -> None: ...

    def abort(self, message: Abort) -> None: ...

    def step(self) -> StepOutput | None: ...

    def take_events(self) -> tuple[TokenEvent, ...]: ...


class Playback:
    """One segment's replay.  ``play_path`` makes a runner take the way through the next pass that the recorded took."""

    def __init__(self) -> None:
        self.play_path: Callable[[str], None] = _only_one_path
        self.turn = Turn()  # the one that is being played
        self.ids: list[str] = []  # sequence id by number
        self._now_s = 0.0
        self._core: Core | None = None
        self._refusals: list[str] = []  # unlike the recorded, in the turn that is being played
        self._last_steps: deque[str] = deque(maxlen=NUM_CONTEXT_STEPS)
        self._last_inputs: deque[str] = deque(maxlen=NUM_CONTEXT_INPUTS)

    # --- what the core is made with ---------------------------------------------------------------
    def now_s(self) -> float:
        """The recorded time at this point."""
        return self._now_s

    def drain(self) -> None:
        """What arrived during the recorded pass."""
        assert self._core is not None, "nothing is being played"
        self._feed(self._core, self.turn.during)
        if isinstance(self.turn.result, Stepped):
            self._now_s = self.turn.result.end_s

    # --- play -------------------------------------------------------------------------------------
    def play(self, core: Core, turns: Iterable[Turn]) -> Report:
        """Play all turns, up to the first difference."""
        self._core = core
        num_steps = num_tokens = 0
        notes: list[str] = []
        for self.turn in turns:
            difference = self._play_turn(core)
            if difference is not None:
                return Report(num_steps, num_tokens, difference, tuple(notes))
            num_steps += isinstance(self.turn.ran, Planned)
            num_tokens += len(self.turn.result.tokens) if isinstance(self.turn.result, Stepped) else 0
            notes += self._notes()
        return Report(num_steps, num_tokens, None, tuple(notes))

    def _play_turn(self, core: Core) -> Difference | None:
        self._refusals = []
        self._feed(core, self.turn.before)
        if self._refusals:
            return self._differs("what was refused or ended from outside", *self._refusals)
        ran = self.turn.ran
        if ran is None:
            return None
        self._now_s = ran.now_s
        if isinstance(self.turn.result, Stepped):
            self.play_path(self.turn.result.path)
        try:
            output = core.step()
        except Exception as error:
            return self._compare_end(f"{type(error).__name__}: {error}")
        if isinstance(ran, Broke) or isinstance(self.turn.result, Broke):
            return self._compare_end(None)
        if self._refusals:
            return self._differs("what was refused or ended from outside during the pass", *self._refusals)
        return self._compare(ran, output)

    def _feed(self, core: Core, inputs: tuple[Input, ...]) -> None:
        """Give the core what it was given, and note where it answers otherwise."""
        for line in inputs:
            match line:
                case Submitted():
                    self.ids.append(line.sequence_id)
                    core.submit(line.message())
                case Aborted():
                    core.abort(Abort(line.sequence_id, line.reason))
                case Refused():
                    continue  # an answer, below
            self._last_inputs.append(describe_input(line))
        said = [_answer(event.sequence_id, event.finish_reason, event.error) for event in core.take_events()]
        expected = [words for line in inputs if (words := self._expected_answer(line)) is not None]
        if said != expected:
            self._refusals = ["; ".join(expected) or "nothing", "; ".join(said) or "nothing"]

    def _expected_answer(self, line: Input) -> str | None:
        if isinstance(line, Refused):
            return _answer(self.ids[line.n], FinishReason.FAILED, line.error)
        if isinstance(line, Aborted) and line.was_there:
            return _answer(line.sequence_id, line.reason, None)
        return None

    # --- compare ----------------------------------------------------------------------------------
    def _compare(self, ran: Planned | Idled | Broke, output: StepOutput | None) -> Difference | None:
        plan = ran if isinstance(ran, Planned) else None
        result = self.turn.result if isinstance(self.turn.result, Stepped) else None
        if plan is None or output is None:
            if plan is None and output is None:
                return None
            was, is_now = recorded(plan, None, self.ids) if plan else None, replayed(output) if output else None
            return self._differs("whether a lane runs", _ran(was), _ran(is_now))
        expected = recorded(plan, result, self.ids)
        found = first_difference(expected, replayed(output), is_whole=result is not None)
        if found is not None:
            name, ours, theirs = found
            return self._differs(f"{name} of step {expected.step}", ours, theirs)
        self._last_steps.append(describe_step(expected))
        return None

    def _compare_end(self, error: str | None) -> Difference | None:
        """The core failed, or was recorded to fail."""
        was = self.turn.result if isinstance(self.turn.result, Broke) else self.turn.ran
        expected = was.error if isinstance(was, Broke) else None
        if error == expected:
            return None
        return self._differs("a failure of the core itself", expected or "none", error or "none")

    def _differs(self, what: str, expected: str, actual: str) -> Difference:
        step = self.turn.ran.step if isinstance(self.turn.ran, Planned) else None
        return Difference(
            what=what,
            step=step,
            line_number=self.turn.line_number,
            expected=expected,
            actual=actual,
            steps_before=tuple(self._last_steps),
            inputs_before=tuple(self._last_inputs),
        )

    def _notes(self) -> list[str]:
        """What a reader should know of a turn that was played well."""
        turn = self.turn
        broke = turn.result if isinstance(turn.result, Broke) else turn.ran
        if isinstance(broke, Broke):
            return [f"the recorded core failed here, and so did this one: {broke.error}"]
        if isinstance(turn.ran, Planned) and turn.result is None:
            return [f"the recording ends within the pass of step {turn.ran.step}: its process ended there"]
        return []


def _only_one_path(path: str) -> None:
    """Of runners that have one way through a pass."""


def _answer(sequence_id: str, reason: FinishReason | None, error: str | None) -> str:
    return f"{sequence_id} {reason}" + (f" ({error})" if error else "")


def _ran(seen: Seen | None) -> str:
    return "no lane runs" if seen is None else describe_step(seen)
