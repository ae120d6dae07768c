"""One benchmark from start to result file.

Owns the order: look at the machine, start everybody, let them take turns, write down.  Ignorant of flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from everystep.bench.closed import ClosedLoad, run_closed
from everystep.bench.environment import environment
from everystep.bench.peers.lineup import Lineup, Roster, lined_up
from everystep.bench.results import Result, Run, client_notes, csv_of, result_of, runs_of
from everystep.bench.tables import markdown_page
from everystep.bench.terminal import Bar


@dataclass(frozen=True)
class ClosedOrder:
    """Sizes and repeats of a closed load; what prompts are drawn from is found out once a server is there."""

    sizes: tuple[int, ...]
    repeats: tuple[int, ...]
    prompt_tokens: int
    max_tokens: int
    seed: int

    def load(self, token_ids: range) -> ClosedLoad:
        return ClosedLoad(**asdict(self), token_ids=token_ids)


def run(lineup: Lineup, order: ClosedOrder, out: Path, bar: Bar) -> Result:
    """Measure and write ``bench.json``, ``bench.csv`` and ``bench.md`` into ``out``.

    However it ends, a signal included, every process that it started has ended when this returns or raises.
    """
    try:
        with asyncio.Runner() as runner:
            result = runner.run(_measure(lineup, order, bar))
    except asyncio.CancelledError:  # by SIGTERM
        raise KeyboardInterrupt from None
    (out / "bench.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "bench.csv").write_text(csv_of(result["runs"]), encoding="utf-8")
    (out / "bench.md").write_text(markdown_page(result), encoding="utf-8")
    return result


async def _measure(lineup: Lineup, order: ClosedOrder, bar: Bar) -> Result:
    machine = environment()
    _end_on_sigterm()
    runs: list[Run] = []
    async with lined_up(lineup, bar.say) as roster:
        load = order.load(roster.token_ids)
        bar.total(load.num_turns * len(roster.contenders))
        bar.say(f"measuring {', '.join(contender.label for contender in roster.contenders)}")
        async for cells in run_closed(roster.contenders, load, bar.turn, roster.rest):
            runs += runs_of(cells, load.max_tokens)
            bar.say(f"N = {cells[0].n}: " + ", ".join(f"{c.contender.label} {c.typical.wall_s:.2f} s" for c in cells))
    if roster.num_restless_turns:
        roster.notes.append(f"{roster.num_restless_turns} turns began while another contender still computed")
    roster.notes += client_notes(runs)
    return result_of(machine, _settings(lineup, order, roster), roster.started, roster.absent, roster.notes, runs)


def _end_on_sigterm() -> None:
    """As Ctrl-C: cancel, so that what was started is ended.  (asyncio does this for SIGINT alone.)"""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _settings(lineup: Lineup, order: ClosedOrder, roster: Roster) -> dict[str, object]:
    """What was asked for, and what the servers were given."""
    ids = roster.token_ids
    given = lineup.settings.model_dump(mode="json", exclude={"api_key", "vllm_api_key"}, exclude_defaults=True)
    return {
        "kind": "closed",
        "model": lineup.settings.model,
        "url": lineup.url,
        "policies": lineup.policies,
        "engines": lineup.engines,
        "peer_precision": lineup.peer_precision,
        **asdict(order),
        "token_ids": [ids.start, ids.stop],
        "temperature": 0,
        "ignore_eos": True,
        "server": given,
    }
