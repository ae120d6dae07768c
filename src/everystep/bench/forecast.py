"""A benchmark that was simulated instead of run: the same loads, the same figures, the same file.

Owns which loads are simulated and what is said of each.  Ignorant of how a lane is simulated, and of terminals.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from everystep.analysis.calibration import Calibration
from everystep.analysis.lengths import Lengths
from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Outcome, Slo
from everystep.analysis.simulator import simulate
from everystep.analysis.summary import summarise
from everystep.bench.open_order import OpenOrder, mean_rate
from everystep.bench.results import Result, Run, result_of
from everystep.bench.saturation import judge
from everystep.bench.served import kind_of
from everystep.config import Settings

ENGINE = "simulated"
FILE = "simulate.json"


@dataclass(frozen=True, slots=True)
class NamedLoad:
    """A load and what it is called by: N at once, or a rate."""

    rate: float | None  # requests a second; None for a closed one
    load: Load

    def __str__(self) -> str:
        return f"N = {len(self.load)}" if self.rate is None else f"{self.rate:.3g}/s"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is to be simulated: every policy on every load."""

    calibration: Calibration
    settings: Settings
    policies: tuple[str, ...]
    loads: tuple[NamedLoad, ...]
    slo: Slo | None
    about: dict[str, object]  # the load as it was asked for

    def run(self, on_turn: Callable[[str], None] = lambda words: None) -> Result:
        """The result file's content; ``on_turn`` hears what is simulated next."""
        runs: list[Run] = []
        notes: list[str] = []
        for named in self.loads:
            for policy in self.policies:
                on_turn(f"{policy}, {named}")
                run, outcome = self._simulate(named, policy)
                runs.append(run)
                notes += _notes(run, outcome, named)
        return result_of(self.calibration.environment, self._settings(), [], [], [*notes, self._accuracy()], runs)

    def _simulate(self, named: NamedLoad, policy: str) -> tuple[Run, Outcome]:
        is_open = named.rate is not None  # then each prompt is a request that a full line turns away
        machine = self.calibration.machine(self.settings, is_one_request=not is_open)  # as the benchmark sends it
        outcome = simulate(named.load, self.settings, policy, machine, is_line_bounded=is_open)
        verdict = judge(outcome.answers)
        run = {
            "engine": ENGINE,
            "policy": policy,
            "label": policy,
            "n": len(named.load),
            "rate": named.rate,
            **summarise(outcome, self.slo),
            "failures": dict(Counter(kind_of(answer.error) for answer in outcome.answers if answer.error is not None)),
            "predicted_wall_s": outcome.wall_s,
            "is_saturated": verdict.is_saturated if is_open else None,
            "unserved_share": verdict.unserved_share if is_open else None,
        }
        return run, outcome

    def _settings(self) -> dict[str, object]:
        """What was simulated: the calibration's model and lanes as they were for this forecast, and the load."""
        one = self.calibration
        machine = one.machine(self.settings)
        lanes = self.settings.model_dump(mode="json", include=set(one.batch) | self.settings.model_fields_set)
        sizes = {"num_blocks": machine.num_blocks, "max_model_len": machine.max_model_len}
        return {"model": one.model, "runner": one.runner, "precision": one.precision, **lanes, **sizes, **self.about}

    def _accuracy(self) -> str:
        one = self.calibration
        return (
            f"from a calibration of {one.model} on {one.runner}, {one.precision}, {one.num_threads} threads: "
            f"step cost R² {one.fit.r_squared:.3f} over {one.fit.num_steps} steps"
        )


def closed_loads(sizes: tuple[int, ...], prompt: Lengths, output: Lengths, seed: int) -> tuple[NamedLoad, ...]:
    """N prompts at once, for each N; a larger N begins with the smaller one's prompts."""
    loads = []
    for size in sizes:
        rng = Random(seed)
        loads.append(NamedLoad(None, [Arrival(0.0, prompt.draw(rng), output.draw(rng)) for _ in range(size)]))
    return tuple(loads)


def open_loads(order: OpenOrder) -> tuple[NamedLoad, ...]:
    """The very arrivals that the benchmark would send for this order."""
    if order.rates:
        return tuple(NamedLoad(rate, order.load(rate)) for rate in order.rates)
    load = order.load(None)
    return (NamedLoad(mean_rate(load), load),)


def _notes(run: Run, outcome: Outcome, named: NamedLoad) -> Iterator[str]:
    """A line for each thing that a reader must know before believing the figures."""
    where = f"{run['policy']}, {named}"
    if run["is_saturated"]:
        yield (
            f"{where}: saturated, {max(0.0, run['unserved_share']):.0%} of what arrived stayed in line: the latencies "
            "are those of a load of this length"
        )
    refused = [answer.error for answer in outcome.answers if answer.error is not None]
    if refused:
        yield f"{where}: {len(refused)} of {len(outcome.answers)} refused, the first with {refused[0]}"
    num_cut = run["num_failed"] - len(refused)
    if num_cut:
        yield f"{where}: {num_cut} of {len(outcome.answers)} outgrow the KV cache and end early"


def write_forecast(result: Result, out: Path) -> Path:
    """Into ``out``, which is made if need be."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / FILE
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
