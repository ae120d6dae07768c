"""everystep's continuous lane against OpenVINO GenAI (and llama.cpp, where it is built): one machine, one run, in turn.

    python benchmarks/against_openvino_genai.py --genai-python PATH [--llama-server PATH] [--repeats 5]

Each engine lives in a process of its own (``contenders.py``), so that its Python and libraries are its own; only one
works at a time.  All get the same token ids, fresh ones for each measurement, so that no prefix cache helps anybody.
Prints medians of output tokens per second and, round by round, the ratio to OpenVINO GenAI; writes Markdown and JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from line_process import LineProcess

HERE = Path(__file__).parent
BASELINE = "openvino-genai"
DEFAULT_CASES = "6:20:1,6:20:4,6:20:16,6:20:64,6:128:1,6:128:4,6:128:16,6:128:64,256:64:1,256:64:4,256:64:16,256:64:64"
TOKEN_IDS = range(1000, 40000)


@dataclass(frozen=True)
class Case:
    """``n`` prompts of ``prompt_tokens`` at once, ``output_tokens`` each."""

    prompt_tokens: int
    output_tokens: int
    n: int

    @staticmethod
    def parse(text: str) -> Case:
        return Case(*map(int, text.split(":")))

    def prompts(self, rng: random.Random) -> list[list[int]]:
        return [[rng.choice(TOKEN_IDS) for _ in range(self.prompt_tokens)] for _ in range(self.n)]


class Contender:
    """An engine's process."""

    def __init__(self, name: str, python: str, model: str, options: dict[str, Any], env: dict[str, str]) -> None:
        self.name = name
        command = [python, str(HERE / "contenders.py"), name, "--model", model, "--options", json.dumps(options)]
        self._lines = LineProcess(name, command, {**os.environ, **env})
        hello = self._lines.hello
        self.about, self.first_tokens_s = hello["about"], hello["first_tokens_s"]

    def measure(self, prompts: list[list[int]], output_tokens: int) -> float:
        """Output tokens per second."""
        reply = self._lines.ask({"prompts": prompts, "output_tokens": output_tokens})
        expected = len(prompts) * output_tokens
        if reply["output_tokens"] != expected:
            raise SystemExit(f"{self.name} made {reply['output_tokens']} tokens of {expected}: not like with like")
        return float(expected / reply["wall_s"])

    def close(self) -> None:
        self._lines.close()


@dataclass
class Results:
    """Tokens per second by case and engine, one figure a round."""

    rates: dict[Case, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, case: Case, name: str, rate: float) -> None:
        self.rates.setdefault(case, {}).setdefault(name, []).append(rate)

    def ratio(self, case: Case, name: str) -> float:
        """Median over rounds of the ratio within the round: the machine's drift cancels."""
        pairs = zip(self.rates[case][name], self.rates[case][BASELINE], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def table(self, names: list[str]) -> Iterator[str]:
        """Markdown."""
        others = [name for name in names if name != BASELINE]
        heads = [f"{name} tok/s" for name in names] + [f"{name} ÷ GenAI" for name in others]
        yield "| prompt → output | N | " + " | ".join(heads) + " |"
        yield "|---|---|" + "---|" * len(heads)
        for case, rates in self.rates.items():
            cells = [f"{statistics.median(rates[name]):.0f}" for name in names]
            cells += [f"**{self.ratio(case, name):.2f}**" for name in others]
            yield f"| {case.prompt_tokens} → {case.output_tokens} | {case.n} | " + " | ".join(cells) + " |"

    def as_json(self) -> list[dict[str, Any]]:
        return [{**vars(case), "tokens_per_s": rates} for case, rates in self.rates.items()]


def run(contenders: list[Contender], cases: list[Case], repeats: int, seed: int) -> Results:
    """Each round of each case runs every engine once, another one first each time; a round before them warms up."""
    rng, results = random.Random(seed), Results()
    for case in cases:
        for repeat in range(-1, repeats):
            prompts = case.prompts(rng)
            turn = repeat % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                rate = contender.measure(prompts, case.output_tokens)
                if repeat >= 0:
                    results.add(case, contender.name, rate)
        shown = ", ".join(f"{name} {statistics.median(rates):.0f}" for name, rates in results.rates[case].items())
        print(f"{case}: {shown}", file=sys.stderr, flush=True)
    return results


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8"} & set(facts.get("flags", "").split())
    cpu = f"{facts.get('model name')}, family {facts.get('cpu family')} model {facts.get('model')}"
    return {"cpu": cpu, "cpus": os.cpu_count(), "flags": sorted(flags), "python": platform.python_version()}


def start(arguments: argparse.Namespace) -> list[Contender]:
    options = json.loads(arguments.options)
    contenders = [
        Contender("everystep", sys.executable, arguments.model, options, {}),
        Contender("everystep-http", sys.executable, arguments.model, options, {}),
        Contender(BASELINE, arguments.genai_python, arguments.model, {}, {}),
    ]
    if arguments.llama_server:
        env = {"LLAMA_SERVER": arguments.llama_server}
        contenders.append(Contender("llama.cpp", sys.executable, arguments.model, {}, env))
    else:
        print("llama.cpp isn't measured: no --llama-server was named", file=sys.stderr)
    return contenders


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file that all engines read")
    parser.add_argument("--genai-python", required=True, help="a Python with openvino-genai")
    parser.add_argument("--llama-server", help="llama.cpp's server program")
    parser.add_argument("--options", default="{}", help="everystep's settings as JSON")
    parser.add_argument("--cases", default=DEFAULT_CASES, help="prompt:output:n,…")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    contenders = start(arguments)
    try:
        cases = [Case.parse(text) for text in arguments.cases.split(",")]
        results = run(contenders, cases, arguments.repeats, arguments.seed)
    finally:
        for contender in contenders:
            contender.close()
    table = "\n".join(results.table([contender.name for contender in contenders]))
    print(table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {
        "machine": machine(),
        "repeats": arguments.repeats,
        "engines": {c.name: {"about": c.about, "first_tokens_s": c.first_tokens_s} for c in contenders},
        "cases": results.as_json(),
    }
    (arguments.out / "against_openvino_genai.json").write_text(json.dumps(report, indent=1))
    (arguments.out / "against_openvino_genai.md").write_text(table + "\n")


if __name__ == "__main__":
    main()
