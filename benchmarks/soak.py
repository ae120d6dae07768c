"""A soak: mixed traffic with random disconnects, kills and bad input for minutes or hours, then the balance sheet.

    make soak                                      # ten minutes of the default model
    make soak ARGS="--minutes 60 --rate 3"
    python benchmarks/soak.py --minutes 1 --model tests/golden/tiny/llama --runner fake

Starts ``everystep serve`` itself; flags that aren't its own are passed on, and win over its own choice.  Ends with 0
only if all is in order: every request had one end that its client knows, every text was the right one, every number
balanced at every second, everything returned to zero, and nobody outlived the server.  Writes ``soak.json`` and
``soak.txt``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from soak_asking import LIMITS, Asking
from soak_bad_input import BadInput
from soak_controls import Controls
from soak_end import Ending
from soak_harm import Harmer
from soak_leavers import Leavers
from soak_ledger import Ledger
from soak_report import JUDGED_AFTER_S, Growth, as_rows, course, growths, must_be_0, quantiles, recovery, sheet
from soak_requests import WORDS, Draw, Facts, controls
from soak_server import Server
from soak_traffic import Traffic
from soak_watch import Numbers, Watch, longest_step_s, read_numbers

from everystep.bench.environment import environment
from everystep.bench.signals import run_signalled

KEY = "soak-key-that-is-only-this-run's"
MAX_BODY_MIB = 4.0
# Small limits, so that lines fill, blocks run out and deadlines pass; whatever is given after them wins.
LIMITS_OF_SERVER = {
    "max-num-seqs": 12, "max-queue": 32, "max-model-len": 512, "max-body-mib": MAX_BODY_MIB,
    "drain-timeout": 30,
}  # fmt: skip
FAKE_CACHE_GIB, CACHE_GIB = 0.00001, 0.05
ROOM = 0.6  # of the cache that a drawn sequence may fill
# Deadlines of the server that its clients must know.
DEADLINES = {"queue_timeout": 20.0, "request_timeout": 60.0, "stall_timeout": 15.0, "client_timeout": 10.0}
BURST = 60  # seats and line hold fewer


def server_flags(options: argparse.Namespace, rest: list[str]) -> list[str]:
    """Of ``everystep serve``: the soak's choice, then what was given."""
    is_fake = "fake" in rest
    chosen = {"model": options.model, "kv-cache-gib": FAKE_CACHE_GIB if is_fake else CACHE_GIB, **LIMITS_OF_SERVER}
    chosen |= {name.replace("_", "-"): getattr(options, name) for name in DEADLINES}
    exact = [] if "--runner" in rest or "--precision" in rest else ["--deterministic"]
    return [*(f"--{name}={value}" for name, value in chosen.items()), *exact, *rest]


async def facts_of(http: httpx.AsyncClient) -> Facts:
    engine = (await http.get("/engine")).json()
    model = (await http.get("/v1/models")).json()["data"][0]["id"]
    words = " ".join(WORDS)
    tokens = (await http.post("/tokenize", json={"prompt": words})).json()["tokens"]
    chat = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    has_chat = (await http.post("/v1/chat/completions", json=chat)).status_code == httpx.codes.OK
    has_timeout = "timeout_s" in (await http.get("/openapi.json")).text
    room = min(engine["max_model_len"], int(engine["num_blocks"] * engine["block_size"] * ROOM))
    ids = range(max(10, min(tokens)), max(max(tokens), 20))
    return Facts(model, room, len(tokens) / len(WORDS), ids, has_timeout, has_chat)


class Soak:
    """One run, from the server's start to the sheet."""

    def __init__(
        self, options: argparse.Namespace, server: Server, http: httpx.AsyncClient, facts: Facts, before: Numbers
    ) -> None:
        self.options, self.server, self.facts = options, server, facts
        self.ledger = Ledger()
        deadline_s, stall_s = options.request_timeout + options.grace, options.stall_timeout
        self.asking = Asking(http, self.ledger, deadline_s)
        self.draw = Draw(facts, self._rng("requests"))
        self.harmer = Harmer(server, self.ledger, self._rng("harm"), stall_s, options.grace + stall_s)
        self.leavers = Leavers(server, self.ledger, self.draw, self._rng("leavers"), deadline_s, options.client_timeout)
        self.bad = BadInput(server, self.ledger, facts, self._rng("bad input"), deadline_s, MAX_BODY_MIB)
        self.controls = Controls(self.asking, controls(facts), self._rng("controls"))
        self.watch = Watch(server, self.ledger.violate, lambda: self.harmer.is_hurt)
        self.traffic = Traffic(
            self.asking, self.draw, self.leavers, self.bad, self.controls, None if options.no_harm else self.harmer,
            self._rng("times"), options.rate, options.most_open, options.burst, options.minutes * 60,
        )  # fmt: skip
        self.ending = Ending(server, self.ledger, self.asking, facts, self.draw, deadline_s, before)
        self.began_s = time.monotonic()

    def _rng(self, who: str) -> random.Random:
        return random.Random(f"{self.options.seed} {who}")

    async def run(self) -> dict[str, Any]:
        say("learning the right texts in quiet ...")
        await self.controls.learn()
        self.watch.start()
        say(f"{self.options.minutes:g} minutes of traffic ...")
        await self.traffic.run()
        say("asking again in quiet ...")
        await self.controls.ask_again()
        numbers = await self.ending.rest(self.harmer.num_ends)
        self.watch.stop()
        say("ending the server while streams are open ...")
        status = await self.ending.leave()
        return self._result(numbers, status)

    def _result(self, numbers: Numbers, status: int | None) -> dict[str, Any]:
        self.ending.read_log()
        memory, ledger = growths(self.watch.samples), self.ledger
        self._judge(memory)
        recovered = recovery(self.harmer.done)
        faults = {kind.removeprefix("fault: "): ends.total() for kind, ends in ledger.ends.items() if "fault" in kind}
        return {
            "minutes": (time.monotonic() - self.began_s) / 60,
            "seed": self.options.seed,
            "about": self.options.about,
            "environment": environment(),
            "load": self._load(numbers),
            "book": ledger.as_json(),
            "faults": faults | {f"worker: {kind}": one["times"] for kind, one in recovered.items()},
            "recovery": recovered,
            "bad_input": {**self.bad.num_tried, "different ones": len(self.bad.names)},
            "must_be_0": must_be_0(ledger),
            "memory": as_rows(memory),
            "course": course(self.watch.samples),
            "exit_status": status,
            "violations": ledger.violated(),
        }

    def _judge(self, memory: Sequence[Growth]) -> None:
        """What only the whole run can tell."""
        for one in memory:
            if one.span_s >= JUDGED_AFTER_S and one.low > self.options.max_growth:
                self.ledger.violate("memory that grows", f"{one.who}: {one.mib_per_hour:+.0f} MiB/h")
        if self.watch.num_unready:
            self.ledger.violate("readiness lost without cause", f"{self.watch.num_unready} samples")

    def _load(self, numbers: Numbers) -> dict[str, Any]:
        live, watch = quantiles(self.watch.live_s), self.watch
        return {
            "requests": self.ledger.num_sent,
            "open at once, at most": self.ledger.max_open,
            "streams at once, at most": self.ledger.max_streams,
            "tokens": int(numbers["everystep_generation_tokens_total"]),
            "tokens found in the cache": int(numbers["everystep_prefix_cache_hit_tokens_total"]),
            "preemptions": int(numbers["everystep_preemptions_total"]),
            "steps": int(numbers["everystep_step_seconds_count"]),
            "longest step, at most (s)": longest_step_s(numbers),
            "bursts": self.traffic.num_bursts,
            "arrivals left out": self.traffic.num_left_out,
            "controls compared": self.controls.num_compared,
            "worst stall, unhurt (s)": watch.worst_stall_s,
            "worst stall, worker hurt (s)": watch.worst_hurt_stall_s,
            "/health/live, median (s)": live["median"],
            "/health/live, p99 (s)": live["p99"],
            "/health/live, worst (s)": live["max"],
            "beyond a request's own deadline, worst (s)": self.asking.max_late_s,
            "left stream's end known, worst (s)": self.leavers.max_freed_s,
        }


async def soak(options: argparse.Namespace, rest: list[str]) -> dict[str, Any]:
    flags = server_flags(options, rest)
    options.about = " ".join(flags)
    say(f"starting everystep serve {options.about}")
    server = await Server.start(flags, KEY, options.out / "soak-server.log")
    try:
        async with httpx.AsyncClient(
            base_url=server.url, headers=server.headers, timeout=None, limits=LIMITS, trust_env=False
        ) as http:
            facts = await facts_of(http)
            before = read_numbers((await http.get("/metrics")).text)
            return await Soak(options, server, http, facts, before).run()
    finally:
        server.kill()


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--minutes", type=float, default=10.0, help="of traffic")
    parser.add_argument("--rate", type=float, default=4.0, help="arrivals a second, of every kind, beside bursts")
    parser.add_argument("--most-open", type=int, default=40, help="requests open at once, outside of bursts")
    parser.add_argument("--burst", type=int, default=BURST, help="requests of a burst, all at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grace", type=float, default=120.0, help="seconds beyond any deadline of the server's")
    parser.add_argument("--max-growth", type=float, default=64.0, help="MiB an hour that a process may surely grow")
    parser.add_argument("--no-harm", action="store_true", help="leave the worker alone")
    parser.add_argument("--out", type=Path, default=Path("results"))
    for name, default in DEADLINES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default, help="seconds, of the server")
    options, rest = parser.parse_known_args()
    options.out.mkdir(parents=True, exist_ok=True)
    result = run_signalled(soak(options, rest))
    (options.out / "soak.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (options.out / "soak.txt").write_text(sheet(result) + "\n", encoding="utf-8")
    print(sheet(result))
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
