"""The core loop: whose turn it is, one forward pass, what clients may now see.

Owns the order plan → run → drain → apply.  Ignorant of processes, sockets, text and HTTP: the
worker, the offline :class:`everystep.LLM` and the tests drive the same object.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from everystep.engine.passes import Passes
from everystep.errors import EverystepError, SchedulerStuck
from everystep.messages import Abort, StepOutput, Submit
from everystep.observe.record import RecordBuilder
from everystep.observe.schedule import SILENT, Recorder
from everystep.sched import BlockPool
from everystep.sched.turns import Turns
from everystep.types import (
    FinishReason,
    Policy,
    Runner,
    Sequence,
    StepPlan,
    TokenEvent,
)

logger = logging.getLogger(__name__)

MAX_IDLE_PLANS = 3  # in a row, with work and nothing to wait for: a policy of a user's may have a plan to spare


class EngineCore:
    """Several lanes on one runner.  Not thread-safe: one caller drives ``submit``, ``abort`` and ``step``."""

    def __init__(
        self,
        *,
        runner: Runner,
        lanes: Mapping[str, Policy],
        pool: BlockPool,
        now_s: Callable[[], float],
        drain: Callable[[], None] = lambda: None,
        first_step: int = 0,
        check_when_idle: bool = False,
        recorder: Recorder = SILENT,
        on_pass: Callable[[StepPlan], None] = lambda plan: None,
    ) -> None:
        """``drain`` is called between the forward pass and its application, to take in what arrived meanwhile.

        ``recorder`` is told of all that comes in and goes on, so that it can be replayed.  ``check_when_idle`` looks at
        each block whenever no lane has work and raises ``AssertionError`` for a count that is wrong; without it only
        the sums are looked at, and a leak is logged.  ``on_pass`` is told of each forward pass before it begins.
        """
        self.runner = runner
        self.passes = Passes(runner, on_pass)
        self.lanes = dict(lanes)
        self._turns = Turns(self.lanes)
        self.pool = pool
        self._now_s = now_s
        self._drain = drain
        self._records = RecordBuilder()
        self._recorder = recorder
        self._step = first_step
        self._arrivals = 0
        self._num_idle_plans = 0
        self._events: list[TokenEvent] = []  # produced by no step: refusals, aborts
        self._check_when_idle = check_when_idle
        self._is_leak_told = False

    # --- what comes in ---------------------------------------------------------------------------
    def submit(self, message: Submit) -> None:
        """Put a sequence into its lane's line.  A refusal becomes a FAILED event, never an exception."""
        sequence = Sequence(
            sequence_id=message.sequence_id,
            request_id=message.request_id,
            policy=message.policy,
            token_ids=list(message.prompt_ids),
            num_prompt_tokens=len(message.prompt_ids),
            params=message.params,
            seed=message.seed,
            eos_token_ids=frozenset(message.eos_token_ids),
            priority=message.priority,
            arrival_s=message.arrival_s,
            arrival_index=self._arrivals,
        )
        self._arrivals += 1
        self._recorder.submitted(message, self._now_s())
        try:
            self.lanes[message.policy].add(sequence)
        except EverystepError as error:
            self._recorder.refused(message, error.message)
            self._events.append(_end(message.sequence_id, FinishReason.FAILED, error.message))

    def abort(self, message: Abort) -> None:
        """End a sequence now.  Its seat and blocks are free at once; an id that isn't here (any more) is no error."""
        was_there = any(lane.abort(message.sequence_id, message.reason) for lane in self.lanes.values())
        self._recorder.aborted(message, self._now_s(), was_there)
        if was_there:
            self._events.append(_end(message.sequence_id, message.reason, None))

    # --- what goes on ----------------------------------------------------------------------------
    def has_work(self) -> bool:
        return self._turns.has_work()

    def take_events(self) -> tuple[TokenEvent, ...]:
        """Events that no step produced, once."""
        events, self._events = tuple(self._events), []
        return events

    def step(self) -> StepOutput | None:
        """One forward pass for the lane whose turn it is; ``None`` if no lane can run now.

        A pass that raises fails rows, never the core: see :mod:`everystep.engine.passes`.  Raises
        :class:`SchedulerStuck` where no lane will ever run, and what a policy raises.
        """
        start_s = self._now_s()
        with self._bugs_recorded(start_s):
            lane, plan = self._turns.next_plan(start_s, self._records.carry_over)
            self._note_plan(is_empty=lane is None, now_s=start_s)
        if lane is None:
            self._idle(start_s)
            return None
        waiting, blocks_used = lane.why_waiting(), self.pool.num_used_blocks
        self._recorder.planned(self._step, start_s, plan, blocks_used)
        result = self.passes.run(plan)
        self._drain()  # clients may have left during the pass
        with self._bugs_recorded(start_s):
            events = lane.apply(plan, result)
        end_s = start_s + result.step_s if result.step_s is not None else self._now_s()
        output = self._records.build(
            step=self._step,
            lane=lane,
            plan=plan,
            waiting=waiting,
            events=events,
            start_s=start_s,
            end_s=end_s,
            blocks_used=blocks_used,
            blocks_after=self.pool.num_used_blocks,
            blocks_total=self.pool.num_blocks,
        )
        self._recorder.stepped(output, result.path)
        self._step += 1
        if not self.has_work():
            self._check_blocks()
        return output

    def close(self) -> None:
        """Free what the runner holds and end the recording."""
        self.runner.close()
        self.end_recording()

    def end_recording(self) -> None:
        """For whoever ends its process: that frees all else, and at once."""
        self._recorder.close()

    def next_ready_s(self) -> float | None:
        """When a lane that waits for company will start by itself; ``None`` if only a message can change things."""
        return self._turns.next_ready_s()

    def _idle(self, now_s: float) -> None:
        """Nobody can run.  Who left may have been the last one here."""
        if self.has_work():
            self._recorder.idled(now_s)
        else:
            self._check_blocks()

    def _check_blocks(self) -> None:
        """No lane has work, so no block is anybody's.  What leaked is lost until a restart: said once."""
        if self._check_when_idle:
            self.pool.check(owners=())
        if not self.pool.is_whole and not self._is_leak_told:
            self._is_leak_told = True
            used, total, where = self.pool.num_used_blocks, self.pool.num_blocks, self._recorder.where
            how = f"the recording {where} says how" if where else "--record makes a file that says how"
            logger.error(
                "a bug of ours: nobody is here, but %d of %d blocks are in use or claimed; %s", used, total, how
            )

    def waits_rightly(self, now_s: float) -> bool:
        """Whether nobody need run now: no lane has work, or one waits for a time that is still to come."""
        ready_s = self.next_ready_s()
        return not self.has_work() or (ready_s is not None and ready_s > now_s)

    def _note_plan(self, *, is_empty: bool, now_s: float) -> None:
        """Raise where lanes have work, none runs, and neither a pass nor a lane's own time will change that."""
        if is_empty and not self.waits_rightly(now_s):
            self._num_idle_plans += 1
            if self._num_idle_plans == MAX_IDLE_PLANS:
                lanes = [f"{name} ({len(lane.why_waiting())} wait)" for name, lane in self.lanes.items()]
                raise SchedulerStuck(
                    f"lanes have work but plan no step, and nothing will change that: {', '.join(lanes)}"
                )
        elif self.has_work():
            self._num_idle_plans = 0

    @contextmanager
    def _bugs_recorded(self, now_s: float) -> Iterator[None]:
        """A policy's own failure ends whoever drives the core; the recording says where."""
        try:
            yield
        except Exception as error:
            self._recorder.broke(now_s, error)
            raise


def _end(sequence_id: str, reason: FinishReason, error: str | None) -> TokenEvent:
    return TokenEvent(sequence_id, finish_reason=reason, error=error)
