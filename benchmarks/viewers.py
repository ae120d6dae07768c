"""What viewers of the live page cost the API process: CPU time a step, with none, one and five of them.

Run ``python benchmarks/viewers.py``.  No model and no sockets: a full lane of 64 seats is played as by ``step_log.py``,
and the events of ``/steps/stream`` are made for each viewer and thrown away.
"""

from __future__ import annotations

import asyncio
import time

import click
from step_log import Lane

from everystep.api.observability import live_steps
from everystep.messages import EngineStatus, StepOutput
from everystep.observe.observer import Observer
from everystep.observe.shared_steps import SharedSteps

STEPS_PER_S = 20
TURNS = 4  # of the event loop after a step, until every viewer has it


class Played:
    """As much of an engine as a stream of steps needs."""

    def __init__(self) -> None:
        self.observer = Observer(policies=("continuous",))
        self.status = EngineStatus(is_live=True, is_ready=True)
        self._news = asyncio.Event()

    def now_s(self) -> float:
        return 0.0

    async def wait_for_step(self, after: int) -> None:
        while self.observer.step_log.last_step <= after:
            await self._news.wait()

    def step(self, output: StepOutput) -> None:
        self.observer.step(output)
        self._news.set()
        self._news = asyncio.Event()


class Viewer:
    """Takes every event and keeps none."""

    def __init__(self, engine: Played, shared: SharedSteps) -> None:
        self.num_events = self.num_bytes = 0
        self.task = asyncio.create_task(self._view(engine, shared))

    async def _view(self, engine: Played, shared: SharedSteps) -> None:
        async for event in live_steps(engine, shared, None):
            self.num_events += 1
            self.num_bytes += len(event)


async def cost(outputs: list[StepOutput], num_viewers: int) -> tuple[float, float]:
    """CPU seconds a step, and bytes a step that each viewer got."""
    engine = Played()
    shared = SharedSteps(engine.observer.step_log)
    viewers = [Viewer(engine, shared) for _ in range(num_viewers)]
    await asyncio.sleep(0)
    before_s = time.process_time()
    for output in outputs:
        engine.step(output)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    spent_s = time.process_time() - before_s
    assert all(viewer.num_events == len(outputs) for viewer in viewers), "a viewer was left behind"
    for viewer in viewers:
        viewer.task.cancel()
    return spent_s / len(outputs), viewers[0].num_bytes / len(outputs) if viewers else 0.0


def played(num_waiting: int, num_steps: int) -> list[StepOutput]:
    lane, outputs = Lane(num_waiting), []
    for _ in range(num_steps):
        outputs.append(lane.output()[0])
        lane.turn()
    return outputs


@click.command(help=__doc__)
@click.option("--steps", default=1_000, show_default=True)
@click.option("--waiting", "lines", type=int, multiple=True, default=(0, 200), show_default=True)
@click.option("--viewers", "counts", type=int, multiple=True, default=(1, 5), show_default=True)
def main(steps: int, lines: tuple[int, ...], counts: tuple[int, ...]) -> None:
    for num_waiting in lines:
        outputs = played(num_waiting, steps)
        alone_s, _ = asyncio.run(cost(outputs, 0))
        click.echo(f"64 rows, {num_waiting} waiting: {alone_s * 1e6:.0f} µs a step without viewers")
        for count in counts:
            with_s, num_bytes = asyncio.run(cost(outputs, count))
            more_s = with_s - alone_s
            share = f"{more_s * STEPS_PER_S:.2%} of a core at {STEPS_PER_S} steps/s"
            click.echo(f"  {count} viewers: {more_s * 1e6:.0f} µs more, {share}; {num_bytes / 1000:.0f} kB a step each")


if __name__ == "__main__":
    main()
