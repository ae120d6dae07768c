"""One benchmark from start to result file.

Owns the order: look at the machine, start everybody, let them take turns, write down.  Ignorant of flags.
"""

from __future__ import annotations

from pathlib import Path

from everystep.bench.closed_findings import ClosedOrder, closed_findings
from everystep.bench.environment import environment
from everystep.bench.figures import NEEDS_MATPLOTLIB, can_draw, draw_all, seats_by_load
from everystep.bench.findings import Findings, Predict, write_files
from everystep.bench.open_findings import open_findings
from everystep.bench.open_order import OpenOrder
from everystep.bench.peers.lineup import lined_up
from everystep.bench.peers.roster import Lineup, Roster
from everystep.bench.results import Result, result_of
from everystep.bench.signals import run_signalled
from everystep.bench.terminal import Bar

Order = ClosedOrder | OpenOrder


def run(
    lineup: Lineup, order: Order, out: Path, bar: Bar, predict: Predict | None = None, *, draws: bool = True
) -> Result:
    """Measure and write ``bench.json``, ``bench.csv``, ``bench.md``, ``samples.jsonl``, ``figures/`` into ``out``.

    ``predict`` fills ``predicted_wall_s``.  However it ends, a signal included, every process that it started has
    ended when this returns or raises.
    """
    result, findings = run_signalled(_measure(lineup, order, bar, predict))
    write_files(result, findings, out)
    if draws:
        _draw(result, findings, out, bar)
    return result


def _draw(result: Result, findings: Findings, out: Path, bar: Bar) -> None:
    """Without matplotlib a line says how to get figures; ``python -m everystep.bench.figures`` draws them later."""
    if not can_draw():
        bar.say(NEEDS_MATPLOTLIB)
        return
    bar.say("drawing ...")
    draw_all(result, out / "figures", seats_by_load(findings.step_logs), bar.say)


async def _measure(lineup: Lineup, order: Order, bar: Bar, predict: Predict | None) -> tuple[Result, Findings]:
    machine = environment()
    async with lined_up(lineup, bar.say) as roster:
        bar.say(f"measuring {', '.join(contender.label for contender in roster.contenders)}")
        if isinstance(order, OpenOrder):
            findings = await open_findings(order, roster, bar, predict)
        else:
            findings = await closed_findings(order, roster, bar, predict)
    if roster.num_restless_turns:
        roster.notes.append(f"{roster.num_restless_turns} turns began while another contender still computed")
    notes = roster.notes + findings.notes
    settings = _settings(lineup, order, roster)
    return result_of(machine, settings, roster.started, roster.absent, notes, findings.runs), findings


def _settings(lineup: Lineup, order: Order, roster: Roster) -> dict[str, object]:
    """What was asked for, and what the servers were given."""
    ids = roster.token_ids
    given = lineup.settings.model_dump(mode="json", exclude={"api_key", "vllm_api_key"}, exclude_defaults=True)
    return {
        "kind": order.kind,
        "model": lineup.settings.model,
        "urls": [target.url for target in lineup.urls],
        "policies": lineup.policies,
        "engines": lineup.engines,
        "peer_precision": lineup.peer_precision,
        **order.as_settings(),
        "token_ids": [ids.start, ids.stop],
        "temperature": 0,
        "ignore_eos": True,
        "server": given,
    }
