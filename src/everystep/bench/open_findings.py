"""An open benchmark from its order to its findings.

Owns what is kept of each turn, and the notes that say where a figure isn't what it seems.  Ignorant of flags, and of
who the contenders are.
"""

from __future__ import annotations

from everystep.analysis.load import Load
from everystep.analysis.percentiles import percentile
from everystep.analysis.summary import summarise
from everystep.bench.findings import Findings, Predict, Sample
from everystep.bench.open_loop import OpenCell, run_open
from everystep.bench.open_order import OpenOrder, mean_rate
from everystep.bench.open_tables import failed_words
from everystep.bench.passes import Contender
from everystep.bench.peers.roster import Roster
from everystep.bench.results import CLIENT_LIMIT, Run
from everystep.bench.served import failures, kind_of
from everystep.bench.terminal import Bar

LAG_LIMIT = 0.05  # of TTFT's median: a client that sends later than that took part in it
LAG_FLOOR_S = 0.005
PROMPT_LIMIT = 0.05  # share by which prompts may be longer or shorter than asked, unsaid


async def open_findings(order: OpenOrder, roster: Roster, bar: Bar, predict: Predict | None) -> Findings:
    """All contenders at every rate, in turn, as far as each keeps up."""
    findings = Findings()
    bar.total(max(1, len(order.rates)) * len(roster.contenders))

    def on_skipped(contender: Contender, rate: float, num_rates: int) -> None:
        bar.fewer(num_rates)
        if num_rates:
            line = f"{contender.label} is saturated at {rate:g}/s: higher rates are skipped (--past-saturation)"
            findings.notes.append(line)
            bar.say(line)

    async for cell in run_open(roster.contenders, order, roster.token_ids, bar.turn, on_skipped, roster.rest):
        run = run_of(cell, order)
        if predict is not None:
            run["predicted_wall_s"] = predict(cell.contender.engine, cell.contender.policy, cell.load)
        findings.runs.append(run)
        findings.samples += samples_of(cell)
        findings.keep_steps(cell.contender.engine, cell.contender.policy, f"{cell.rate:g}", cell.served.steps)
        findings.notes += failure_notes(cell) + client_notes(run) + prompt_notes(cell)
        bar.say(_line(run))
    return findings


def run_of(cell: OpenCell, order: OpenOrder) -> Run:
    """A turn's figures.  ``lag_s`` is ``None`` where nothing is sent."""
    served, verdict = cell.served, cell.verdict
    lags_s = served.client.lags_s
    return {
        "engine": cell.contender.engine,
        "policy": cell.contender.policy,
        "label": cell.contender.label,
        "n": len(cell.load),
        "rate": cell.rate,
        "offered_per_s": _offered_per_s(cell.load),
        **summarise(served.outcome, order.slo_or_none),
        "predicted_wall_s": None,
        "failures": failures(served),
        "is_saturated": verdict.is_saturated,
        "unserved_share": verdict.unserved_share,
        "client_cores": served.client.cpu_s / max(served.outcome.wall_s, 1e-9),
        "lag_s": {"p99": percentile(lags_s, 0.99), "max": max(lags_s)} if lags_s else None,
        "prompt_tokens_per_request": _mean_prompt(cell),
    }


def _offered_per_s(load: Load) -> float | None:
    """As drawn: by chance not just the rate; ``None`` where all came at once."""
    return mean_rate(load) if load[-1].at_s > 0 else None


def _mean_prompt(cell: OpenCell) -> float | None:
    """As the server counted; ``None`` where it doesn't, or answered nobody."""
    num_whole = sum(answer.is_whole for answer in cell.served.outcome.answers)
    counted = cell.served.num_prompt_tokens
    return counted / num_whole if counted and num_whole else None


def samples_of(cell: OpenCell) -> list[Sample]:
    """A line a request, failed ones included.  Times of single tokens are left out: they are most of the bytes."""
    name = {"engine": cell.contender.engine, "policy": cell.contender.policy, "n": len(cell.load), "rate": cell.rate}
    answers = cell.served.outcome.answers
    lags_s = cell.served.client.lags_s or (None,) * len(answers)
    return [
        name
        | {
            "at_s": round(answer.arrival.at_s, 6),
            "prompt_tokens": answer.arrival.prompt_tokens,
            "output_tokens": answer.arrival.output_tokens,
            "lag_s": lag_s and round(lag_s, 6),
            "ttft_s": round(answer.ttft_s, 6) if answer.is_whole else None,
            "e2e_s": round(answer.e2e_s, 6) if answer.is_whole else None,
            "error": answer.error,
        }
        for answer, lag_s in zip(answers, lags_s, strict=True)
    ]


def failure_notes(cell: OpenCell) -> list[str]:
    """A line for each kind of failure, in the words of the first."""
    first: dict[str, str] = {}
    for answer in cell.served.outcome.answers:
        if answer.error is not None:
            first.setdefault(kind_of(answer.error), answer.error)
    counts = failures(cell.served)
    where = f"{cell.contender.label}, {cell.rate:g}/s"
    return [f"{where}: {counts[kind]} of {len(cell.load)} failed with {words}" for kind, words in first.items()]


def client_notes(run: Run) -> list[str]:
    """A line where the client, not the server, was the limit, or took part in what it measured."""
    where, notes = f"{run['label']}, {run['rate']:g}/s", []
    if run["client_cores"] > CLIENT_LIMIT:
        notes.append(
            f"the client itself took {run['client_cores']:.0%} of a core at {where}: it took part in that figure"
        )
    lag_s, ttft_s = run["lag_s"], run["ttft_s"]["p50"]
    if lag_s and lag_s["p99"] > max(LAG_FLOOR_S, LAG_LIMIT * (ttft_s or 0.0)):
        notes.append(
            f"the client was the limit at {where}: it sent up to {lag_s['max'] * 1000:.0f} ms late "
            f"(p99 {lag_s['p99'] * 1000:.0f} ms), which is in the latencies"
        )
    return notes


def prompt_notes(cell: OpenCell) -> list[str]:
    """A line where prompts weren't as long as asked: text has about as many tokens as words, no more."""
    counted, whole = _mean_prompt(cell), [one for one in cell.served.outcome.answers if one.is_whole]
    if counted is None:
        return []
    asked = sum(answer.arrival.prompt_tokens for answer in whole) / len(whole)
    if abs(counted - asked) <= PROMPT_LIMIT * asked:
        return []
    return [f"{cell.contender.label}, {cell.rate:g}/s: prompts had {counted:.1f} tokens on average, not {asked:.1f}"]


def _line(run: Run) -> str:
    ttft_s = run["ttft_s"]["p99"]
    words = [f"{run['rate']:g}/s: {run['label']} {run['requests_per_s']:.2f} requests/s"]
    words += [f"TTFT p99 {ttft_s:.2f} s"] if ttft_s is not None else []
    words += [f"failed: {failed_words(run['failures'])}"] if run["failures"] else []
    words += ["saturated"] if run["is_saturated"] else []
    return ", ".join(words)
