"""What the step log costs: in the worker a step, in the API process a step and a token, and in memory.

Run ``python benchmarks/step_log.py``.  No model: a full continuous lane with a long line is played, in which three
sequences end and three begin at each step, so that the line is told anew each time (the worst case).
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from everystep.messages import EngineStatus, StepOutput, Submit
from everystep.observe.observer import Observer
from everystep.observe.recent import MAX_WINDOW_S
from everystep.observe.record import RecordBuilder
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool, ContinuousPolicy
from everystep.types import FinishReason, Row, SampledToken, Sequence, StepPlan, TokenEvent, WaitCause, Waiting

STEP_S = 0.045  # of a forward pass of 64 rows on a small machine: what the costs are held against
NUM_SEATS = 64
NUM_ENDING = 3  # sequences a step
PARAMS = SamplingParams(max_tokens=20)
STATUS = EngineStatus(is_live=True, is_ready=True)


@dataclass
class Lane:
    """Full seats before a line of constant length."""

    num_waiting: int
    random: random.Random = field(default_factory=lambda: random.Random(0))
    step: int = 0

    def __post_init__(self) -> None:
        self.policy = ContinuousPolicy(NUM_SEATS, pool=BlockPool())
        self.builder = RecordBuilder()
        self.seats = [self.arrive() for _ in range(NUM_SEATS)]
        self.line = [self.arrive() for _ in range(self.num_waiting)]
        self.waiting = self.explain()

    def arrive(self) -> Sequence:
        request_id = f"cmpl-{self.random.getrandbits(128):032x}"
        return Sequence(
            f"{request_id}-0", request_id, "continuous", [1] * 16, 12, PARAMS, 0, frozenset(), arrival_s=self.now_s()
        )

    def now_s(self) -> float:
        return self.step * STEP_S + self.random.random() / 1000

    def explain(self) -> tuple[Waiting, ...]:
        return tuple(Waiting(sequence, WaitCause.NO_SEAT) for sequence in self.line)

    def turn(self) -> tuple[list[Sequence], list[Sequence]]:
        """Some end, the line moves up; who ended and who came."""
        ended, come = [], []
        for seat in self.random.sample(range(NUM_SEATS), NUM_ENDING):
            come.append(self.arrive())
            self.line.append(come[-1])
            ended.append(self.seats[seat])
            self.seats[seat] = self.line.pop(0)
        if self.num_waiting:
            self.waiting = self.explain()
        self.step += 1
        return ended, come

    def output(self) -> tuple[StepOutput, float]:
        """A step as it leaves the worker, and the seconds that building it took."""
        rows = tuple(Row(sequence, seat, 15, 1) for seat, sequence in enumerate(self.seats))
        plan = StepPlan("continuous", rows)
        events = [TokenEvent(sequence.sequence_id, SampledToken(17)) for sequence in self.seats]
        start_s = self.now_s()
        before = time.perf_counter()
        output = self.builder.build(
            step=self.step,
            lane=self.policy,
            plan=plan,
            waiting=self.waiting,
            events=events,
            start_s=start_s,
            end_s=start_s + STEP_S,
            blocks_used=self.step % 2048,
            blocks_after=self.step % 2048,
            blocks_total=2048,
        )
        return output, time.perf_counter() - before


def submit_of(sequence: Sequence) -> Submit:
    return Submit(
        sequence.sequence_id, sequence.request_id, sequence.policy, (1,) * 12, PARAMS, 0, (), 0, sequence.arrival_s
    )


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def show(what: str, seconds: list[float]) -> None:
    median, top = percentile(seconds, 0.5), percentile(seconds, 0.99)
    mean = sum(seconds) / len(seconds)
    words = f"{what:<48} mean {mean * 1e6:7.1f}  median {median * 1e6:7.1f}  p99 {top * 1e6:7.1f} µs"
    click.echo(f"{words}  {mean / STEP_S:6.2%} of a step")


def timed(call: Callable[[], object]) -> float:
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def resident_mb() -> float:
    """This process's resident memory; Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def count_tokens(observer: Observer, lane: Lane, now_s: float) -> None:
    for sequence in lane.seats:
        observer.token(sequence.sequence_id, now_s)


def play(num_waiting: int, num_steps: int) -> None:
    lane, observer, before_mb = Lane(num_waiting), Observer(policies=("continuous",)), resident_mb()
    for sequence in (*lane.seats, *lane.line):
        observer.accepted(submit_of(sequence))
    build_s, keep_s, tokens_s = [], [], []
    for _ in range(num_steps):
        output, seconds = lane.output()
        now_s = lane.now_s()
        build_s.append(seconds)
        keep_s.append(timed(partial(observer.step, output)))
        tokens_s.append(timed(partial(count_tokens, observer, lane, now_s)))
        ended, come = lane.turn()
        for sequence in ended:
            observer.finished(sequence.sequence_id, FinishReason.LENGTH, now_s)
        for sequence in come:
            observer.accepted(submit_of(sequence))
    click.echo(f"\n64 rows, {num_waiting} waiting, {len(observer.step_log):,} steps in the log")
    show("worker: build a step's output", build_s)
    show("API process: keep it", keep_s)
    show("API process: count its 64 tokens", tokens_s)
    scrape = partial(observer.metrics.render, STATUS, "0", lane.now_s())
    show("API process: a scrape", [timed(scrape) for _ in range(50)])
    figures = partial(observer.recent.figures, "continuous", lane.now_s(), MAX_WINDOW_S)
    show("API process: a lane's figures of the last minute", [timed(figures) for _ in range(50)])
    newest = observer.step_log.last_step - 1
    read = partial(observer.step_log.since_as_json, newest, 1)
    show("API process: read a step as JSON", [timed(lambda: list(read())) for _ in range(50)])
    log_mb, grown_mb = observer.step_log.num_bytes / 1e6, resident_mb() - before_mb
    click.echo(f"{'memory':<48} log {log_mb:.1f} MB; the process grew by {grown_mb:.1f} MB")


@click.command(help=__doc__)
@click.option("--steps", default=10_000, show_default=True)
@click.option("--waiting", "lines", type=int, multiple=True, default=(0, 200), show_default=True)
def main(steps: int, lines: tuple[int, ...]) -> None:
    for num_waiting in lines:
        play(num_waiting, steps)


if __name__ == "__main__":
    main()
