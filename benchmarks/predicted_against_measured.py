"""What the simulator predicts against what a server does: wall time, TTFT and TPOT of every lane under every load.

    python benchmarks/predicted_against_measured.py --trace FILE.csv [--out results/predicted] [--parts PART,...]
    python benchmarks/predicted_against_measured.py --report [--out results/predicted]

Each part starts a server, calibrates it, drives its loads and simulates the very same arrivals with that calibration,
all in under three minutes, since a machine drifts.  Nothing is fitted to what is predicted here: the loads' lengths are
other ones than the calibration's.  The rates are shares of what the simulator says that the lane can do at most.

A part's figures are ``PART.json`` in the folder; ``--report`` puts all that lie there into ``table.json`` and
``table.md``, which a run without ``--parts`` does at its end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everystep.analysis.arrivals import poisson
from everystep.analysis.calibration import Calibration
from everystep.analysis.lengths import parse_lengths
from everystep.analysis.load import Load, closed
from everystep.analysis.outcome import Answer, Outcome
from everystep.analysis.percentiles import summary
from everystep.analysis.simulator import simulate
from everystep.analysis.summary import summarise
from everystep.analysis.traces import read_trace
from everystep.bench.calibrate import Site, calibrate, started
from everystep.bench.calibrate_quiet import OtherWork
from everystep.bench.open_loop import prompts_for
from everystep.bench.signals import run_signalled
from everystep.config import Settings

LANES = ("static", "per_token", "continuous")
PARTS = ("closed", *LANES, *(f"trace-{lane}" for lane in LANES))
SIZES, CLOSED_PROMPT, CLOSED_OUTPUT = (1, 4, 16, 64), 6, 20
PROMPT, OUTPUT = parse_lengths("lognormal:30,0.8,400"), parse_lengths("lognormal:10,0.6,60")
LEVELS = {"light": (0.3, 40), "medium": (0.6, 60), "saturating": (2.0, 90)}  # share of the most, requests
TRACE_REQUESTS, TRACE_SHARE, TRACE_LENGTH = 45, 0.7, 0.1
GOALS = {"wall_s": 0.10, "ttft_p99_s": 0.20}
FIGURES = ("wall_s", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s")


@dataclass(frozen=True)
class Cell:
    """One load for one lane.  ``is_one_request``: all prompts in one body, as the closed benchmark sends them."""

    policy: str
    name: str
    load: Load
    is_one_request: bool = False


def cells_of(part: str, calibration: Calibration, trace: Path | None, seed: int) -> Iterator[Cell]:
    """What a part measures."""
    if part == "closed":
        for policy in LANES:
            for n in SIZES:
                yield Cell(policy, f"N = {n}", closed(n, CLOSED_PROMPT, CLOSED_OUTPUT), is_one_request=True)
    elif part.startswith("trace-"):
        assert trace is not None
        policy = part.removeprefix("trace-")
        yield Cell(policy, "trace", scaled_trace(trace, policy, calibration))
    else:
        for level, (share, num) in LEVELS.items():
            rng = random.Random(f"{seed} {part} {level}")
            most = capacity(part, calibration, poisson(1.0, num, PROMPT, OUTPUT, rng))
            yield Cell(part, level, poisson(share * most, num, PROMPT, OUTPUT, rng))


def scaled_trace(path: Path, policy: str, calibration: Calibration) -> Load:
    """The trace's first requests, a tenth as long, as often as makes the lane busy for 70 % of what it can."""
    first = read_trace(path, length_scale=TRACE_LENGTH, max_requests=TRACE_REQUESTS)
    rate = (len(first) - 1) / (first[-1].at_s - first[0].at_s)
    time_scale = rate / (TRACE_SHARE * capacity(policy, calibration, first))
    return read_trace(path, time_scale=time_scale, length_scale=TRACE_LENGTH, max_requests=TRACE_REQUESTS)


def capacity(policy: str, calibration: Calibration, load: Load) -> float:
    """Requests a second where nobody ever waits for a client: the load's lengths, all there at once."""
    at_once = [type(one)(0.0, one.prompt_tokens, one.output_tokens) for one in load]
    return len(load) / simulate(at_once, calibration.settings(), policy, calibration.machine()).wall_s


async def measure(site: Site, cell: Cell, rng: random.Random) -> Outcome:
    """What the server did with the load."""
    lane, prompts = site.lane(cell.policy), prompts_for(cell.load, site.token_ids, rng)
    if not cell.is_one_request:
        return (await lane.serve(cell.load, prompts)).outcome
    done = await lane.measure(prompts, cell.load[0].output_tokens)
    answers = [
        Answer(arrival, times, arrival.output_tokens) for arrival, times in zip(cell.load, done.arrivals_s, strict=True)
    ]
    return Outcome(answers, max(times[-1] for times in done.arrivals_s))


def figures(outcome: Outcome) -> dict[str, float]:
    """The figures that are compared; refuses an outcome with failures."""
    found = summarise(outcome)
    if found["num_failed"]:
        raise SystemExit(f"{found['num_failed']} requests failed: {[a.error for a in outcome.answers if a.error][:1]}")
    ttft, tpot = found["ttft_s"], found["tpot_s"]
    values = (found["wall_s"], ttft["p50"], ttft["p99"], tpot["p50"], tpot["p99"])
    return dict(zip(FIGURES, values, strict=True))


async def run_parts(parts: Sequence[str], trace: Path | None, out: Path, seed: int) -> None:
    """Start, calibrate once, then measure, simulate and write part by part."""
    async with started(Settings(kv_cache_gib=2.0), out, say) as site:
        calibration = await calibrate(site, say, seed)
        for part in parts:
            cells = cells_of(part, calibration, trace, seed)
            rows = [await compare(site, cell, calibration, seed + 1) for cell in cells]
            found = {"part": part, "seed": seed, "rows": rows, "calibration": told(calibration)}
            (out / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


async def compare(site: Site, cell: Cell, calibration: Calibration, seed: int) -> dict[str, Any]:
    """One load, measured and simulated."""
    others = OtherWork(site.pid)
    measured = await measure(site, cell, random.Random(seed))
    cores = others.cores()
    machine = calibration.machine(is_one_request=cell.is_one_request)
    predicted = simulate(cell.load, calibration.settings(), cell.policy, machine)
    row = row_of(cell, figures(measured), figures(predicted), cores)
    say(line_of(row))
    return row


def row_of(cell: Cell, measured: dict[str, float], predicted: dict[str, float], cores: float | None) -> dict[str, Any]:
    errors = {
        name: predicted[name] / measured[name] - 1 if measured[name] and predicted[name] else None for name in FIGURES
    }
    lengths = {
        "prompt_tokens": summary([one.prompt_tokens for one in cell.load]),
        "output_tokens": summary([one.output_tokens for one in cell.load]),
    }
    span_s = cell.load[-1].at_s - cell.load[0].at_s
    return {
        "policy": cell.policy,
        "load": cell.name,
        "requests": len(cell.load),
        "rate": (len(cell.load) - 1) / span_s if span_s else None,
        "lengths": lengths,
        "measured": measured,
        "predicted": predicted,
        "error": errors,
        "meets_goals": all(abs(errors[name] or 0.0) <= limit for name, limit in GOALS.items()),
        "other_cores": cores,
    }


def told(calibration: Calibration) -> dict[str, Any]:
    names = ("model", "runner", "precision", "num_threads", "coefficients", "submit_s", "deliver_s", "environment")
    fit = calibration.fit
    quality = {"r_squared": fit.r_squared, "num_steps": fit.num_steps, "num_outliers": fit.num_outliers}
    return {name: getattr(calibration, name) for name in names} | {"fit": quality}


def report(out: Path) -> None:
    """One table of all parts that lie in the folder."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for name in PARTS if (path := out / f"{name}.json").exists()]
    if not parts:
        raise SystemExit(f"no part lies in {out}")
    rows = [row for part in parts for row in part["rows"]]
    (out / "table.json").write_text(json.dumps({"goals": GOALS, "parts": parts}, indent=1) + "\n", encoding="utf-8")
    (out / "table.md").write_text("\n".join(markdown(rows)) + "\n", encoding="utf-8")
    print("\n".join(markdown(rows)))
    missed = [row for row in rows if not row["meets_goals"]]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} loads within 10 % of wall time and 20 % of p99 TTFT")


def markdown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Measured → predicted (error), in seconds."""
    yield "| lane | load | requests | wall | TTFT p50 | TTFT p99 | TPOT p50 | TPOT p99 | others' cores |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        rate = f", {row['rate']:.2f}/s" if row["rate"] else ""
        cells = [row["policy"], f"{row['load']}{rate}", str(row["requests"])]
        cells += [pair(row, name) for name in FIGURES]
        yield f"| {' | '.join([*cells, '–' if row['other_cores'] is None else format(row['other_cores'], '.2f')])} |"


def pair(row: dict[str, Any], name: str) -> str:
    error = row["error"][name]
    if error is None:
        return "–"
    words = f"{row['measured'][name]:.3g} → {row['predicted'][name]:.3g} ({error:+.0%})"
    return f"**{words}**" if abs(error) > GOALS.get(name, 9.0) else words


def line_of(row: dict[str, Any]) -> str:
    return f"{row['policy']} {row['load']}: " + ", ".join(f"{name} {pair(row, name)}" for name in FIGURES)


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a trace with Azure's columns, for the trace parts")
    parser.add_argument("--out", type=Path, default=Path("results/predicted"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--together", action="store_true", help="one server and calibration for all parts given")
    parser.add_argument("--report", action="store_true", help="only put the parts together")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = [] if options.report else options.parts.split(",")
    for part in parts:
        if part not in PARTS:
            parser.error(f"{part!r} is none of {', '.join(PARTS)}")
        if part.startswith("trace-") and options.trace is None:
            parser.error(f"{part} needs --trace FILE")
    for group in [parts] if options.together and parts else [[part] for part in parts]:
        run_signalled(run_parts(group, options.trace, options.out, options.seed))
    if options.report or len(parts) == len(PARTS):
        report(options.out)


if __name__ == "__main__":
    main()
