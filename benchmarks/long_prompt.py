"""What a long prompt costs its neighbours, and what chunking it costs the prompt.

    python benchmarks/long_prompt.py                         # the whole: about seven minutes
    python benchmarks/long_prompt.py --repeats 1             # or a round at a time, some two minutes each,
    python benchmarks/long_prompt.py --repeats 1 --add       # whose turns are added to those that the file has

Eight answers decode in the continuous lane of the default model when a prompt of 4,000 tokens arrives.  Each budget
(``--max-num-batched-tokens``) has a server of its own; they take turns within a round.  Worst ITL of the neighbours,
before the prompt came and while it was read, over HTTP as a client sees it; beside it the longest step that a
neighbour took part in, from ``/steps``.  ``unchunked`` is a budget that holds the whole prompt and every seat's token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
from long_prompt_run import DEADLINE_S, Orders, Turn, take_turn

from everystep.bench.environment import environment
from everystep.bench.peers.everystep_server import running
from everystep.bench.scrape import prompt_token_ids, served_model

SEATS = 16
UNCHUNKED = "unchunked"
NAMES = {
    "worst_itl_without_s": "worst ITL before",
    "worst_itl_with_s": "worst ITL while it is read",
    "ratio": "ratio",
    "long_ttft_s": "TTFT of the long prompt",
    "num_steps_with": "steps",
    "longest_step_with_s": "longest step",
    "neighbours_left_out": "left out",
}
Cells = dict[str, list[Turn]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default=f"64,128,512,{UNCHUNKED}", help="tokens a step, in turns")
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=4_000)
    parser.add_argument("--before", type=int, default=30, help="tokens of each neighbour before the prompt comes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/long-prompt.json"))
    parser.add_argument("--add", action="store_true", help="add these turns to those that the file has")
    parser.add_argument("flags", nargs="*", help="of everystep serve, behind --")
    arguments = parser.parse_args()
    facts = environment()
    before = turns_before(arguments.out) if arguments.add else {}
    cells = asyncio.run(measure(arguments, seed=arguments.seed + sum(map(len, before.values()))))
    cells = {budget: before.get(budget, []) + cells.get(budget, []) for budget in {**before, **cells}}
    print(table(written(arguments, facts, cells)["budgets"]))


def turns_before(path: Path) -> Cells:
    """Those of an older result file; none where there is no file."""
    budgets = json.loads(path.read_text())["budgets"] if path.exists() else {}
    return {budget: [Turn(**turn) for turn in cell["turns"]] for budget, cell in budgets.items()}


async def measure(arguments: argparse.Namespace, seed: int) -> Cells:
    budgets, rng = arguments.budgets.split(","), random.Random(seed)
    async with AsyncExitStack() as stack:
        clients = {budget: await _started(stack, budget, arguments) for budget in budgets}
        orders = await _orders(clients[budgets[0]], arguments)
        cells: Cells = {budget: [] for budget in budgets}
        for repeat in range(arguments.repeats):
            for budget, http in clients.items():
                turn = await take_turn(http, orders, rng)
                cells[budget].append(turn)
                words = f"worst ITL {turn.worst_itl_without_s:.3f} → {turn.worst_itl_with_s:.3f} s"
                print(f"{repeat + 1}/{arguments.repeats} {budget}: {words}", file=sys.stderr, flush=True)
    return cells


async def _started(stack: AsyncExitStack, budget: str, arguments: argparse.Namespace) -> httpx.AsyncClient:
    """A server with this budget, warmed up, and a client that opens as many connections as there are streams."""
    tokens = arguments.prompt_tokens + SEATS if budget == UNCHUNKED else int(budget)
    log = arguments.out.parent / "logs" / f"long-prompt-{budget}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = ["--max-num-batched-tokens", str(tokens), "--max-num-seqs", str(SEATS), "--no-prefix-cache"]
    server = await stack.enter_async_context(
        running(sys.executable, [*flags, *arguments.flags], log, f"budget {budget}")
    )
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    http = await stack.enter_async_context(
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, limits=limits, trust_env=False)
    )
    body = {"model": await served_model(http), "prompt": ["a b c d"] * 4, "max_tokens": 8, "ignore_eos": True}
    (await http.post("/v1/completions", json=body)).raise_for_status()
    return http


async def _orders(http: httpx.AsyncClient, arguments: argparse.Namespace) -> Orders:
    return Orders(
        model=await served_model(http),
        token_ids=await prompt_token_ids(http),
        num_neighbours=arguments.neighbours,
        num_prompt_tokens=arguments.prompt_tokens,
        num_before=arguments.before,
    )


# --- what is left --------------------------------------------------------------------------------
def written(arguments: argparse.Namespace, facts: Mapping[str, object], cells: Cells) -> dict[str, Any]:
    """The result file, whose figures are medians over turns with their spread."""
    result = {
        "schema": 1,
        "environment": dict(facts),
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "budgets": {
            budget: {"turns": [turn.as_json() for turn in turns], **_medians(turns)} for budget, turns in cells.items()
        },
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _medians(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    found = {}
    for name in NAMES:
        values = [getattr(turn, name) for turn in turns]
        found[name] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return found


def table(budgets: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown; smallest budget first."""
    lines = ["| budget | " + " | ".join(NAMES.values()) + " |", "|---" * (len(NAMES) + 1) + "|"]
    for budget in sorted(budgets, key=lambda name: float("inf") if name == UNCHUNKED else int(name)):
        figures = budgets[budget]
        lines.append(f"| {budget} | " + " | ".join(_words(name, figures[name]) for name in NAMES) + " |")
    return "\n".join(lines)


def _words(name: str, figure: Mapping[str, float]) -> str:
    median, least, most = figure["median"], figure["least"], figure["most"]
    if name in ("num_steps_with", "neighbours_left_out"):
        return f"{median:g}" if least == most else f"{least:g} to {most:g}"
    unit = " s" if name.endswith("_s") else ""
    return f"{median:.3g}{unit} ({least:.3g} to {most:.3g})"


if __name__ == "__main__":
    main()
