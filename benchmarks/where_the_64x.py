"""Takes the factor between a hand-written static server and continuous batching apart, a part per experiment.

    python benchmarks/where_the_64x.py run PIECE … --model FOLDER --torch-python PATH
    python benchmarks/where_the_64x.py table [--into docs/where-the-64x-comes-from.md]
    python benchmarks/where_the_64x.py figures

A piece starts the processes it needs (``where_the_64x_worker.py``), lets its cases take turns on the same fresh
prompts, another first in each round, and writes ``PIECE.json``.  ``table`` reads the files and prints what
``docs/where-the-64x-comes-from.md`` holds: factors are medians over rounds of the ratio within a round.  The model of
opt-125m's shape is made by ``models/opt_125m_shape.py``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from line_process import LineProcess
from where_the_64x_pieces import BESIDE, CHAIN, PIECES, PROCESSES, SHARED, TOTAL, Case, Link, Process

from everystep.bench.environment import environment

HERE = Path(__file__).parent
TOKEN_IDS = range(1000, 40_000)
REST_S = 0.5  # threads that spin for the next task give up within it
Measured = dict[str, list[dict[str, Any]]]  # case → reply of each counted round


class Worker:
    """A process that answers one order at a time."""

    def __init__(self, process: Process, python: str, model: str) -> None:
        settings = {"model": model, **SHARED, **process.settings}
        command = [python, str(HERE / "where_the_64x_worker.py"), process.kind, "--settings", json.dumps(settings)]
        self._lines = LineProcess("a worker", command)
        self.about = str(self._lines.hello["about"])

    def run(self, case: Case, prompts: list[list[int]]) -> dict[str, Any]:
        order = asdict(case) | {"prompts": prompts}
        del order["process"], order["passes"]
        reply = self._lines.ask(order)
        if reply["num_tokens"] != sum(case.outputs):
            raise SystemExit(f"{case}: {reply['num_tokens']} tokens of {sum(case.outputs)}: not like with like")
        return reply

    def close(self) -> None:
        self._lines.close()


@contextmanager
def started(cases: Mapping[str, Case], pythons: Mapping[str, str], model: str) -> Iterator[dict[str, Worker]]:
    """Every process that the cases name, by name."""
    with ExitStack() as stack:
        workers = {}
        for name in dict.fromkeys(case.process for case in cases.values()):
            workers[name] = Worker(PROCESSES[name], pythons[PROCESSES[name].python], model)
            stack.callback(workers[name].close)
        yield workers


def prompts_of(case: Case, round_number: int) -> list[list[int]]:
    """The same for all cases of the same lengths in a round, new in the next."""
    rng = random.Random(f"{round_number} {case.prompts}")
    return [rng.choices(TOKEN_IDS, k=length) for length in case.prompts]


def measure(cases: Mapping[str, Case], repeats: int, workers: Mapping[str, Worker]) -> Measured:
    """Each round every case once; a warm-up comes first and isn't counted."""
    for case in cases.values():
        workers[case.process].run(case.warm, prompts_of(case.warm, -1))
    measured: Measured = {name: [] for name in cases}
    names = list(cases)
    for round_number in range(repeats):
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            reply = turn_of(cases[name], workers[cases[name].process], round_number)
            measured[name].append(reply)
            print(f"round {round_number}: {name}: {reply['wall_s']:.3f} s", file=sys.stderr, flush=True)
    return measured


def turn_of(case: Case, worker: Worker, round_number: int) -> dict[str, Any]:
    """The pass whose wall time is the median; ``walls_s`` has all."""
    replies = []
    for number in range(case.passes):
        time.sleep(REST_S)
        replies.append(worker.run(case, prompts_of(case, round_number * case.passes + number)))
    replies.sort(key=lambda reply: float(reply["wall_s"]))
    return replies[len(replies) // 2] | {"walls_s": [reply["wall_s"] for reply in replies]}


def run_piece(name: str, given: argparse.Namespace) -> None:
    piece = PIECES[name]
    pythons = {"own": sys.executable, "torch": given.torch_python}
    machine = environment()
    with started(piece.cases, pythons, given.model) as workers:
        measured = measure(piece.cases, given.repeats or piece.repeats, workers)
    steps = {case: reply.pop("steps") for case, replies in measured.items() for reply in replies}
    given.out.mkdir(parents=True, exist_ok=True)
    if any(steps.values()):
        (given.out / "steps.json").write_text(json.dumps(steps))
    report = {
        "piece": name,
        "about": piece.about,
        "model": Path(given.model).name,
        "environment": machine,
        "processes": {process: worker.about for process, worker in workers.items()},
        "cases": {case: {**asdict(piece.cases[case]), "rounds": replies} for case, replies in measured.items()},
    }
    (given.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


def walls_s(reports: Mapping[str, Any], piece: str, case: str) -> list[float]:
    return [reply["wall_s"] for reply in reports[piece]["cases"][case]["rounds"]]


def per_prompt(reports: Mapping[str, Any], piece: str, case: str) -> list[float]:
    """Seconds a prompt, so that batches of different sizes compare."""
    num_prompts = len(reports[piece]["cases"][case]["prompts"])
    return [wall_s / num_prompts for wall_s in walls_s(reports, piece, case)]


def ratios(link: Link, reports: Mapping[str, Any]) -> list[float]:
    """One a round."""
    pairs = (per_prompt(reports, link.piece, case) for case in (link.before, link.after))
    return [before / after for before, after in zip(*pairs, strict=True)]


def line(link: Link, reports: Mapping[str, Any]) -> str:
    """A row of the table: the part, seconds before and after, the factor and its range."""
    if link.piece not in reports:
        return f"| {link.words} | not measured | | | `run {link.piece}` |"
    found = ratios(link, reports)
    before, after = (statistics.median(walls_s(reports, link.piece, case)) for case in (link.before, link.after))
    spread = f" ({min(found):.2f}–{max(found):.2f})" if len(found) > 1 else ""
    return (
        f"| {link.words} | {before:.3g} → {after:.3g} s | **{statistics.median(found):.2f}**{spread} "
        f"| {len(found)} | `run {link.piece}` |"
    )


def product(links: Sequence[Link], reports: Mapping[str, Any]) -> float | None:
    """``None`` where a link wasn't measured."""
    if any(link.piece not in reports for link in links):
        return None
    factor = 1.0
    for link in links:
        factor *= statistics.median(ratios(link, reports))
    return factor


HEAD = "| part | wall time | factor (range) | rounds | experiment |\n|---|---|---|---|---|"


def tables(reports: Mapping[str, Any]) -> dict[str, str]:
    """The chain with its product and the whole, the parts beside the chain, and what a batch costs by its rows."""
    chain = [HEAD, *(line(link, reports) for link in CHAIN)]
    whole = product(CHAIN, reports)
    chain += [f"| **product of the parts** | | **{whole:.1f}** | | |" if whole else "| product | not measured | | | |"]
    chain += [line(TOTAL, reports)]
    beside = [HEAD, *(line(link, reports) for link in BESIDE)]
    rows = rows_lines(reports) if "rows" in reports else []
    return {name: "\n".join(lines) for name, lines in (("chain", chain), ("beside", beside), ("rows", rows))}


def put(tables_by_name: Mapping[str, str], document: Path) -> None:
    """Each table between its marks, ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``."""
    text = document.read_text(encoding="utf-8")
    for name, words in tables_by_name.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, _, rest = text.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise SystemExit(f"{document} has no {begin} … {end}")
        text = f"{before}{begin}\n{words}\n{end}{after}"
    document.write_text(text, encoding="utf-8")


def rows_lines(reports: Mapping[str, Any]) -> list[str]:
    """Seconds of one batch of N, and how many times one row's that is."""
    sizes, lines = (1, 4, 16, 64), ["| all N in one batch, 20 tokens | N = 1 | 4 | 16 | 64 |", "|---|---|---|---|---|"]
    for engine in ("hf", "int8"):
        walls = [statistics.median(walls_s(reports, "rows", f"{engine}, {n} rows")) for n in sizes]
        cells = [f"{wall_s:.2f} s ({wall_s / walls[0]:.1f}×)" for wall_s in walls]
        lines.append(f"| {reports['rows']['processes'][engine]} | {' | '.join(cells)} |")
    return lines


def draw_figures(reports: Mapping[str, Any], out: Path) -> None:
    """What the tables say, as figures; the machine is the last piece's."""
    from where_the_64x_figures import Part, draw

    last = reports["picture"]
    result = {"environment": last["environment"], "settings": {"model": last["model"]}}
    is_whole = product(CHAIN, reports) is not None and TOTAL.piece in reports
    parts = [Part(link.short, statistics.median(ratios(link, reports))) for link in CHAIN] if is_whole else []
    measured = statistics.median(ratios(TOTAL, reports)) if is_whole else None
    draw(parts, measured, json.loads((out / "steps.json").read_text()), result, out / "figures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/where-the-64x"))
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="; ".join(f"{name}: {piece.about}" for name, piece in PIECES.items()))
    run.add_argument("pieces", nargs="+", choices=PIECES)
    run.add_argument("--model", required=True, help="a Hugging Face folder")
    run.add_argument("--torch-python", default=sys.executable, help="a Python with torch and transformers")
    run.add_argument("--repeats", type=int, help="rounds, instead of the piece's own")
    commands.add_parser("table").add_argument("--into", type=Path, help="put the tables between a document's marks")
    commands.add_parser("figures", help="of the chain and of seats, into OUT/figures")
    given = parser.parse_args()
    if given.command == "run":
        for name in given.pieces:
            run_piece(name, given)
        return
    reports = {path.stem: json.loads(path.read_text()) for path in given.out.glob("*.json") if path.stem in PIECES}
    if given.command == "table":
        made = tables(reports)
        print("\n\n".join(made.values()))
        if given.into:
            put(made, given.into)
    else:
        draw_figures(reports, given.out)


if __name__ == "__main__":
    main()
