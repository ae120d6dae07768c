"""A core driven by hand, recorded, and checked at every step: what the fuzz plays on.

Owns the clock, the recording and the ledger of who was promised what.  A violated promise raises, and leaves the
recording behind as a file that can be replayed.  What the promises of a step are stands in ``promises.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everystep.engine.core import EngineCore
from everystep.messages import Abort, StepOutput, Submit
from everystep.observe.schedule_writer import ScheduleWriter
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.types import FinishReason, Sequence, StepPlan, StepResult, TokenEvent
from fuzzing.promises import Promises
from fuzzing.scenes import BLOCK_SIZE, EOS, EOS_RATE, MAX_MODEL_LEN, VOCAB, MakeLanes, Scene, right_lanes, text_alone

PROBE = "probe "
MAX_STEPS = 5_000  # of all that is left, in the end


@dataclass
class Promised:
    """One submitted sequence: what it should get, and what it got."""

    submit: Submit
    expected: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    end: FinishReason | None = None
    was_in_a_broken_pass: bool = False


class StageRunner(FakeRunner):
    """The fake model.  A name that ends in ``!3`` fails with its third token, ``?3`` breaks the pass then.

    ``on_pass`` is told the plan before anything is computed, once a step.  What it raises is kept: the core would take
    it for the pass's failure.
    """

    is_repeatable = True

    def __init__(self, on_pass: Callable[[StepPlan], None]) -> None:
        super().__init__(vocab_size=VOCAB, block_size=BLOCK_SIZE, eos_token_id=EOS, eos_rate=EOS_RATE)
        self.violation: AssertionError | None = None
        self.broken_with: list[str] = []
        self.is_new_step = True
        self._on_pass = on_pass

    def run(self, plan: StepPlan) -> StepResult:
        if self.is_new_step:
            self.is_new_step = False
            self._show(plan)
        if any(_is_due(row.sequence, "?") for row in plan.rows):
            self.broken_with += [row.sequence.sequence_id for row in plan.rows]
            raise RuntimeError("broken pass")
        self.fails = {row.sequence.sequence_id: "broken row" for row in plan.rows if _is_due(row.sequence, "!")}
        return super().run(plan)

    def _show(self, plan: StepPlan) -> None:
        try:
            self._on_pass(plan)
        except AssertionError as error:
            self.violation = error


def _is_due(sequence: Sequence, mark: str) -> bool:
    _, found, count = sequence.sequence_id.partition(mark)
    return bool(found) and sequence.num_output_tokens >= int(count)


class Stage:
    """Drive it with ``submit``, ``abort``, ``step`` and ``finish``; read ``alive``.  It is recorded in ``record``.

    Where a promise is broken the recording is copied to ``keep_as``, and the error says so.
    """

    def __init__(self, scene: Scene, record: Path, keep_as: Path, make_lanes: MakeLanes = right_lanes) -> None:
        self.scene = scene
        self.now_s = 0.0
        self.during: list[Callable[[], None]] = []  # what happens within the next pass
        self.promised: dict[str, Promised] = {}
        self.sequences: dict[str, Sequence] = {}
        self.num_steps = 0
        self._record, self._keep_as = record, keep_as
        record.unlink(missing_ok=True)
        header = scene.header()
        self.pool = BlockPool(scene.num_blocks, BLOCK_SIZE, prefix_cache=scene.settings.prefix_cache)
        self.lanes = dict(make_lanes(scene.settings, self.pool, header))
        self.promises = Promises(scene, self.pool, self.lanes)
        for lane in self.lanes.values():
            lane.add = self._noting(lane.add)  # type: ignore[method-assign]
        self.runner = StageRunner(self.promises.check_plan)
        self.runner.allocate(scene.num_blocks)
        self._writer = ScheduleWriter(record, header)
        self.core = EngineCore(
            runner=self.runner,
            lanes=self.lanes,
            pool=self.pool,
            now_s=lambda: self.now_s,
            drain=self.happen_now,
            check_when_idle=True,
            recorder=self._writer,
        )

    @property
    def alive(self) -> list[str]:
        """Who is owed an end."""
        return [name for name, promised in self.promised.items() if promised.end is None]

    # --- what happens -----------------------------------------------------------------------------
    def submit(self, name: str, lane: str, prompt: tuple[int, ...], *, priority: int = 0, **params: int | bool) -> None:
        given = SamplingParams(**params)  # type: ignore[arg-type]
        self.take(Submit(name, name, lane, prompt, given, 0, (EOS,), priority, self.now_s))

    def take(self, submit: Submit) -> None:
        with self._kept_on_failure():
            self._take(submit)
            self._hear(self.core.take_events())
            self._check_blocks()

    def abort(self, name: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        with self._kept_on_failure():
            was_alive = name in self.promised and self.promised[name].end is None
            self.core.abort(Abort(name, reason))
            self._hear(self.core.take_events())
            if was_alive:
                assert self.promised[name].end is reason, f"{name} was ended for {reason} and wasn't told so"
                assert self.sequences[name].block_ids == [], f"{name} has gone and still has blocks"
            self._check_blocks()

    def step(self) -> StepOutput | None:
        """One look of the core at its lanes.  Nobody may be left waiting for nothing."""
        with self._kept_on_failure():
            return self._step()

    def happen_now(self) -> None:
        """What was to happen within a pass happens."""
        happenings, self.during = self.during, []
        for happen in happenings:
            happen()

    def finish(self) -> None:
        """Run all that is left, then prove that seats and blocks are all there."""
        with self._kept_on_failure():
            self._run_out()
            assert not self.alive, f"never ended: {self.alive}"
            self._fill_every_seat()
            self._run_out()
            assert self.pool.is_whole

    def close(self) -> None:
        self._writer.close()

    # --- the same, unguarded ----------------------------------------------------------------------
    def _take(self, submit: Submit) -> None:
        params, prompt = submit.params, submit.prompt_ids
        can_fit = 0 < len(prompt) < self.scene.cache_tokens and len(prompt) + params.max_tokens <= MAX_MODEL_LEN
        expected = (prompt, params.max_tokens, params.min_tokens, params.ignore_eos, self.scene.cache_tokens)
        self.promised[submit.sequence_id] = Promised(submit, text_alone(*expected) if can_fit else ())
        self.core.submit(submit)
        if not can_fit:
            self._hear(self.core.take_events())
            assert self.promised[submit.sequence_id].end is FinishReason.FAILED, "what never fits was let in"
            assert submit.sequence_id not in self.sequences

    def _step(self) -> StepOutput | None:
        self.promises.look(self.now_s, self._live())
        self.runner.is_new_step, self.runner.broken_with = True, []
        output = self.core.step()
        if self.runner.violation is not None:
            raise self.runner.violation
        for name in self.runner.broken_with:
            if name in self.promised:
                self.promised[name].was_in_a_broken_pass = True
        self._hear((*self.core.take_events(), *(output.events if output else ())))
        self._check_blocks()
        if output is None:
            ready_s = self.core.next_ready_s()
            waits = ready_s is not None and ready_s > self.now_s
            assert waits or not self.core.has_work() or not self._live(), "lanes have work and none can run"
            return None
        self.num_steps += 1
        self._check_texts()
        self.promises.check_step(output.summary.policy, self._live())
        return output

    def _run_out(self) -> None:
        for _ in range(MAX_STEPS):
            if not self.core.has_work():
                return
            if self._step() is None and (ready_s := self.core.next_ready_s()) is not None:
                self.now_s = max(self.now_s, ready_s)
            self.now_s += 0.1
        raise AssertionError(f"still work after {MAX_STEPS} steps: {self.alive}")

    def _fill_every_seat(self) -> None:
        """As many as there are seats get one in the lane's first step, or a seat has leaked."""
        for lane_name, lane in self.lanes.items():
            params = SamplingParams(max_tokens=1)
            for i in range(lane.num_seats):
                name = f"{PROBE}{lane_name} {i}"
                self._take(Submit(name, name, lane_name, (EOS + 1,), params, 0, (EOS,), 0, self.now_s))
            output = self._step()
            assert output is not None
            seated = output.summary.num_working
            assert seated == min(lane.num_seats, self.scene.num_blocks), f"{seated} of {lane.num_seats} seats are there"
            self._run_out()

    # --- the ledger -------------------------------------------------------------------------------
    def _live(self) -> list[Sequence]:
        return [sequence for sequence in self.sequences.values() if not sequence.is_finished]

    def _noting(self, add: Callable[[Sequence], None]) -> Callable[[Sequence], None]:
        def note(sequence: Sequence) -> None:
            add(sequence)
            self.sequences[sequence.sequence_id] = sequence

        return note

    def _hear(self, events: tuple[TokenEvent, ...]) -> None:
        for event in events:
            promised = self.promised[event.sequence_id]
            assert promised.end is None, f"{event.sequence_id} was told something after its end"
            if event.token is not None:
                promised.tokens.append(event.token.token_id)
                num = len(promised.tokens)
                assert promised.tokens[-1:] == list(promised.expected[num - 1 : num]), (
                    f"token {num} of {event.sequence_id} isn't what it gets alone"
                )
            if event.finish_reason is not None:
                promised.end = event.finish_reason
                self._check_end(event.sequence_id, promised)

    def _check_end(self, name: str, promised: Promised) -> None:
        whole, got = promised.expected, tuple(promised.tokens)
        params = promised.submit.params
        if promised.end is FinishReason.FAILED:
            assert not whole or "!" in name or promised.was_in_a_broken_pass or name in self.runner.broken_with
        elif name in self.sequences and got == whole and promised.end is not FinishReason.ABORTED:
            ends_text = got[-1] == EOS and not params.ignore_eos and len(got) >= params.min_tokens
            assert promised.end in (FinishReason.TIMEOUT, FinishReason.STOP if ends_text else FinishReason.LENGTH)
        elif promised.end is FinishReason.LENGTH:
            raise AssertionError(f"{name} ended for {promised.end} after {len(got)} of {len(whole)} tokens")

    def _check_texts(self) -> None:
        """Known tokens are the prompt and what clients were told, preempted or not."""
        for sequence in self._live():
            promised = self.promised[sequence.sequence_id]
            told = [*promised.submit.prompt_ids, *promised.tokens]
            assert sequence.token_ids == told, f"the known tokens of {sequence.sequence_id} aren't those it was told"

    def _check_blocks(self) -> None:
        self.pool.check([sequence.block_ids for sequence in self.sequences.values()])

    @contextmanager
    def _kept_on_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._writer.close()
            self._keep_as.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._record, self._keep_as)
            error.add_note(f"the trace is kept: {self._keep_as} (tests/sched/kept_traces.py says what to do with it)")
            raise
