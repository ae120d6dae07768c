"""A closed benchmark from its order to its findings.

Owns what is kept of each N.  Ignorant of flags, and of who the contenders are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from everystep.analysis.load import closed
from everystep.bench.closed import ClosedLoad, Measured, run_closed
from everystep.bench.findings import Findings, Predict, Sample
from everystep.bench.peers.roster import Roster
from everystep.bench.results import client_notes, runs_of
from everystep.bench.terminal import Bar


@dataclass(frozen=True)
class ClosedOrder:
    """Sizes and repeats of a closed load; what prompts are drawn from is found out once a server is there."""

    sizes: tuple[int, ...]
    repeats: tuple[int, ...]
    prompt_tokens: int
    max_tokens: int
    seed: int

    kind = "closed"

    def load(self, token_ids: range) -> ClosedLoad:
        return ClosedLoad(**asdict(self), token_ids=token_ids)

    @property
    def most_at_once(self) -> int:
        """Prompts that a server's line must hold."""
        return max(self.sizes)

    def as_settings(self) -> dict[str, object]:
        """For the result file."""
        return asdict(self)


async def closed_findings(order: ClosedOrder, roster: Roster, bar: Bar, predict: Predict | None) -> Findings:
    """All contenders at every N, in turn."""
    findings = Findings()
    load = order.load(roster.token_ids)
    bar.total(load.num_turns * len(roster.contenders))
    async for cells in run_closed(roster.contenders, load, bar.turn, roster.rest):
        n = cells[0].n
        runs = runs_of(cells, load.max_tokens)
        for run in runs if predict else []:
            assert predict is not None
            prompts = closed(n, order.prompt_tokens, order.max_tokens)
            run["predicted_wall_s"] = predict(run["engine"], run["policy"], prompts)
            run["round_law_s"] = predict.round_law_s(run["engine"], run["policy"], prompts)
        findings.runs += runs
        findings.samples += [sample for cell in cells for sample in _samples(cell)]
        for cell in cells:
            findings.keep_steps(cell.contender.engine, cell.contender.policy, str(n), cell.typical.steps)
        bar.say(f"N = {n}: {_walls(cells)}")
    findings.notes += client_notes(findings.runs)
    return findings


def _walls(cells: Sequence[Measured]) -> str:
    return ", ".join(f"{cell.contender.label} {cell.typical.wall_s:.2f} s" for cell in cells)


def _samples(cell: Measured) -> list[Sample]:
    """A line a prompt of each counted round."""
    name = {"engine": cell.contender.engine, "policy": cell.contender.policy, "n": cell.n, "rate": None}
    return [
        name | {"round": number, "ttft_s": round(times[0], 6), "e2e_s": round(times[-1], 6)}
        for number, one in enumerate(cell.passes)
        for times in one.arrivals_s
    ]
