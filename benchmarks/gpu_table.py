"""Requests and tokens a second on one GPU, on facebook/opt-125m's shape: N = 1, 4, 16, 64, then 256 and 1,024.

    PYTHONPATH=src python benchmarks/gpu_table.py [--device cuda|cpu] [--tiny] [--out DIR] [--budget-s 300]

Prompts of 6 tokens, 20 and 128 generated, all sent at once.  Every figure is the median of some repetitions that
alternate between the contenders; each repetition has prompts of its own.  What the budget leaves no time for is listed
as skipped.  Writes ``gpu.json`` and ``gpu.md``; exit status 1 if a contender failed.  ``--tiny`` takes a small model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent / "models"))

import gpu_contenders as contenders
import opt_125m_shape

PROMPT_TOKENS = 6
ROUND = (1, 4, 16, 64)
GENERATE = "transformers generate, static 4"
THEIRS, BESIDE = "Llama: transformers continuous batching", "Llama: everystep continuous"
STATIC, PER_TOKEN, CONTINUOUS = "everystep static 4", "everystep per_token 4", "everystep continuous"


@dataclass(frozen=True)
class Plan:
    """What is measured beside N = 1, 4, 16, 64."""

    wide: tuple[int, ...]
    output_tokens: tuple[int, int]
    repeats: int


TINY_VOCAB = 512
FULL, TINY = Plan((256, 1024), (20, 128), repeats=5), Plan((96,), (5, 9), repeats=1)


@dataclass
class Line:
    """One contender at one N and one number of tokens."""

    contender: str
    n: int
    output_tokens: int
    wall_s: list[float] = field(default_factory=list)
    note: str = ""

    def figures(self) -> dict[str, Any]:
        wall = statistics.median(self.wall_s) if self.wall_s else None
        return {
            **asdict(self),
            "requests_per_s": None if wall is None else round(self.n / wall, 2),
            "output_tokens_per_s": None if wall is None else round(self.n * self.output_tokens / wall, 1),
        }


class Table:
    """Measures while time is left, and remembers what it had none for."""

    def __init__(self, vocab_size: int, budget_s: float, repeats: int) -> None:
        self._vocab_size = vocab_size
        self._budget_s = budget_s
        self._ends_at = time.monotonic() + budget_s
        self._repeats = repeats
        self._warm: set[str] = set()
        self._broken: set[str] = set()
        self._rng = random.Random(0)
        self.lines: list[Line] = []
        self.failures: list[str] = []

    @property
    def left_s(self) -> float:
        return self._ends_at - time.monotonic()

    def section(self, every: dict[str, contenders.Contender], n: int, num_tokens: int, share: float) -> None:
        """Repetitions in turn, for at most ``share`` of the whole budget; one at least while any of it is left."""
        ends_at = time.monotonic() + self._budget_s * share
        lines = [Line(name, n, num_tokens) for name in every]
        self.lines += lines
        for line in lines:
            if line.contender not in self._warm and self.left_s > 0:
                self._warm.add(line.contender)
                self._once(line, every[line.contender], is_counted=False)
        for _ in range(self._repeats):
            for line in lines:
                if line.contender in self._broken:
                    line.note = line.note or "failed before"
                elif self.left_s <= 0 or (line.wall_s and time.monotonic() > ends_at):
                    line.note = line.note or f"no time left after {len(line.wall_s)} repetitions"
                else:
                    self._once(line, every[line.contender], is_counted=True)

    def _once(self, line: Line, contender: contenders.Contender, is_counted: bool) -> None:
        prompts = [[self._rng.randrange(4, self._vocab_size) for _ in range(PROMPT_TOKENS)] for _ in range(line.n)]
        try:
            _wait()
            start = time.perf_counter()
            outputs = contender(prompts, line.output_tokens)
            _wait()
            wall_s = time.perf_counter() - start
            if [len(output) for output in outputs] != [line.output_tokens] * line.n:
                raise RuntimeError(
                    f"gave {sorted({len(output) for output in outputs})} tokens to {len(outputs)} prompts"
                )
        except Exception as error:
            traceback.print_exc()
            line.note = f"failed: {type(error).__name__}: {error}"[:300]
            if line.contender != THEIRS:  # theirs is noted; it says nothing of ours
                self.failures.append(f"{line.contender}, N={line.n}, {line.output_tokens} tokens: {line.note}")
            self._broken.add(line.contender)
            return
        if is_counted:
            line.wall_s.append(round(wall_s, 5))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(table: Table, folder: Path, device: str, plan: Plan) -> dict[str, Any]:
    """The hand-written baseline and our policies."""
    ours = contenders.Ours(folder, device, max(plan.wide))
    model = contenders.load_model(folder, device)
    every: dict[str, contenders.Contender] = {
        GENERATE: contenders.static_generate(model),
        STATIC: ours.contender("static", contenders.STATIC_BATCH),
        PER_TOKEN: ours.contender("per_token", contenders.STATIC_BATCH),
        CONTINUOUS: ours.contender("continuous", max(ROUND)),
    }
    for num_tokens in plan.output_tokens:
        for n, share in zip(ROUND, (0.03, 0.04, 0.08, 0.15), strict=True):
            table.section(every, n, num_tokens, share)
        for n in plan.wide:
            table.section({f"{CONTINUOUS}, {n} seats": ours.contender("continuous", n)}, n, num_tokens, share=0.05)
    ours.close()
    return ours.facts


def measure_theirs(table: Table, folder: Path, device: str, plan: Plan) -> None:
    """transformers' own continuous batching, which can't run OPT, beside ours on a Llama of the same sizes.

    Last, since its manager takes what memory is left.
    """
    ours = contenders.Ours(folder, device, max(ROUND))
    theirs = contenders.TheirContinuous(contenders.load_model(folder, device))
    try:
        pair = {THEIRS: theirs, BESIDE: ours.contender("continuous", max(ROUND))}
        for num_tokens in plan.output_tokens:
            for n in ROUND:
                table.section(pair, n, num_tokens, share=0.02)
    finally:
        theirs.close()
        ours.close()


def environment(device: str) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda if device == "cuda" else None,
    }


def markdown(report: dict[str, Any]) -> str:
    """One table for each number of tokens: contenders down, N across, requests/s and tokens/s."""
    where, facts = report["environment"], report["runner"]
    parts = [
        f"{where['device']}, torch {where['torch']}, transformers {where['transformers']}; {report['model']}; "
        f"attention: {facts.get('attention')}, {facts.get('num_graphs')} graphs, {facts.get('precision')}. "
        f"Prompts of {PROMPT_TOKENS} tokens, medians; requests/s (tokens/s).\n"
    ]
    for num_tokens in sorted({line["output_tokens"] for line in report["lines"]}):
        lines = [line for line in report["lines"] if line["output_tokens"] == num_tokens]
        widths = sorted({line["n"] for line in lines})
        parts.append(f"\n| {num_tokens} tokens | " + " | ".join(f"N={n}" for n in widths) + " |")
        parts.append("\n|---|" + "---|" * len(widths))
        for name in dict.fromkeys(line["contender"] for line in lines):
            cells = [_cell([x for x in lines if x["contender"] == name and x["n"] == n]) for n in widths]
            parts.append(f"\n| {name} | " + " | ".join(cells) + " |")
        parts.append("\n")
    return "".join(parts)


def _cell(lines: list[dict[str, Any]]) -> str:
    if not lines:
        return ""
    line = lines[0]
    if line["requests_per_s"] is None:
        return str(line["note"]).split(":")[0].split(" after")[0]
    return f"{line['requests_per_s']:.1f} ({line['output_tokens_per_s']:.0f})"


def make_opt(folder: Path, is_tiny: bool) -> None:
    """The shape itself; a tiny one to try the script."""
    if not is_tiny:
        opt_125m_shape.make(folder, seed=0)
        return
    sizes = {"hidden_size": 64, "ffn_dim": 128, "word_embed_proj_dim": 64, "num_hidden_layers": 2}
    config = transformers.OPTConfig(**sizes, num_attention_heads=4, vocab_size=TINY_VOCAB, max_position_embeddings=256)
    torch.manual_seed(0)
    transformers.OPTForCausalLM(config).save_pretrained(folder)


def make_llama(folder: Path, is_tiny: bool) -> None:
    """opt-125m's sizes in a Llama."""
    shape = opt_125m_shape
    sizes = (64, 128, 2, 4, TINY_VOCAB, 256) if is_tiny else (
        shape.HIDDEN, shape.FFN, shape.LAYERS, shape.HEADS, shape.VOCAB, shape.POSITIONS
    )  # fmt: skip
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
             "max_position_embeddings")  # fmt: skip
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**dict(zip(names, sizes, strict=True)))
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--budget-s", type=float, default=300.0)
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "torch finds no CUDA device here (to try the script: --device cpu --tiny)\n")
    report: dict[str, Any] = {
        "schema": 1,
        "model": "a tiny OPT" if given.tiny else "facebook/opt-125m's shape, random weights",
        "environment": environment(given.device),
        "runner": {},
    }
    plan = TINY if given.tiny else FULL
    table = Table(TINY_VOCAB if given.tiny else opt_125m_shape.VOCAB, given.budget_s, plan.repeats)
    with tempfile.TemporaryDirectory() as name:
        try:
            make_opt(Path(name) / "opt", given.tiny)
            report["runner"] = measure(table, Path(name) / "opt", given.device, plan)
        except Exception:
            table.failures.append(traceback.format_exc())
        try:
            make_llama(Path(name) / "llama", given.tiny)
            measure_theirs(table, Path(name) / "llama", given.device, plan)
        except Exception as error:  # theirs may not start: no fault of ours
            traceback.print_exc()
            report["notes"] = [f"no pair with transformers' continuous batching: {type(error).__name__}: {error}"]
    report["lines"] = [line.figures() for line in table.lines]
    report["failures"] = table.failures
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    (given.out / "gpu.md").write_text(markdown(report))
    print(markdown(report))
    for failure in table.failures:
        print(failure, file=sys.stderr)
    sys.stdout.flush()
    return 1 if table.failures else 0


if __name__ == "__main__":
    os._exit(main())  # a thread of transformers' manager that hangs would keep the process alive
