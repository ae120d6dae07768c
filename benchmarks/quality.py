"""What each precision costs in quality and gives in speed, on this machine: one command, one table.

    python benchmarks/quality.py [--model smollm2-135m] [--precisions f32,bf16,int8,int8!,int4] [--json FILE]

``int8!`` is ``--precision int8 --deterministic``.  Quality is measured against f32 on a fixed text: perplexity, the
mean Kullback-Leibler divergence of the next token's distribution, and how often the likeliest token is the same.  It
talks to the runner directly: no engine, no scheduler.  Speeds drift with whatever else the machine does; only figures
of one run compare.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.architecture import Checkpoint
from everystep.checkpoint import default_cache_dir, open_checkpoint
from everystep.runner.openvino_runner import OpenVINORunner
from everystep.runner.threads import cpu_features, cpu_name, usable_cpus
from everystep.sampling_params import SamplingParams
from everystep.text import Tokenizer
from everystep.types import Row, Sequence, StepPlan

TEXT = Path(__file__).with_name("quality.txt")
WIDTH = 64  # positions of the text computed in one pass
WIDTHS = (1, 4, 16, 64)
SPEED_PROMPT_TOKENS, NUM_BLOCKS = 6, 256
NOTABLE_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Line:
    """One precision's line of the table."""

    precision: str
    weights: str
    arithmetic: str
    activation_group: int
    kv_cache: str
    perplexity: float
    kl_divergence: float
    top1_agreement: float
    same_in_company: bool  # to the bit: alone, in a batch, and read in one piece
    start_s: float
    tokens_per_s: dict[int, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--precisions", default="f32,bf16,int8,int8!,int4", help="f32 comes first: the rest meet it")
    parser.add_argument("--tokens", type=int, default=32, help="generated tokens a row for the speed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cache_dir = default_cache_dir()
    checkpoint = open_checkpoint(arguments.model, cache_dir)
    token_ids = Tokenizer(checkpoint.tokenizer).encode_text(TEXT.read_text("utf-8"))
    about = machine()
    print(f"{checkpoint.name} on {about['cpu']}, {about['threads']} threads, {', '.join(about['features'])}")
    print(
        f"{len(token_ids)} tokens of text; {arguments.tokens} generated tokens a row, median of {arguments.repeats}\n"
    )
    print(heading())
    lines, reference = [], None
    for name in arguments.precisions.split(","):
        line, logits = measure(name, checkpoint, cache_dir, token_ids, reference, arguments)
        reference = logits if reference is None else reference
        lines.append(line)
        print(row_of(line), flush=True)
    if arguments.json:
        content = {
            "machine": about,
            "model": checkpoint.name,
            "num_tokens": len(token_ids),
            "lines": list(map(asdict, lines)),
        }
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")


def measure(
    name: str,
    checkpoint: Checkpoint,
    cache_dir: Path,
    token_ids: list[int],
    reference: Logits | None,
    arguments: argparse.Namespace,
) -> tuple[Line, Logits]:
    """The line of one precision, and its logits of every position ``[tokens, vocab]``."""
    start = time.perf_counter()
    runner = OpenVINORunner(
        checkpoint, precision=name.removesuffix("!"), deterministic=name.endswith("!"), cache_dir=cache_dir
    )
    runner.allocate(NUM_BLOCKS)
    runner.warm_up(max(WIDTHS), WIDTH)
    start_s = time.perf_counter() - start
    runner.wait_for_static_decode()
    logits = all_logits(runner, token_ids)
    precision = runner.plan_precision
    line = Line(
        precision=name,
        weights=precision.weights,
        arithmetic=precision.arithmetic,
        activation_group=precision.dynamic_group,
        kv_cache=precision.kv_cache,
        perplexity=perplexity(logits, token_ids),
        kl_divergence=0.0 if reference is None else kl_divergence(reference, logits),
        top1_agreement=1.0 if reference is None else float((reference.argmax(1) == logits.argmax(1)).mean()),
        same_in_company=is_same_in_company(runner, token_ids, logits),
        start_s=start_s,
        tokens_per_s={n: speed(runner, n, arguments.tokens, arguments.repeats) for n in WIDTHS},
    )
    runner.close()
    return line, logits


# --- quality -------------------------------------------------------------------------------------
def all_logits(runner: OpenVINORunner, token_ids: list[int]) -> Logits:
    """Logits after every token: each pass reads some tokens of the text as rows of one token over the same blocks."""
    logits = np.empty((len(token_ids), runner.vocab_size), np.float32)
    blocks = list(range(-(-len(token_ids) // runner.block_size)))
    for start in range(0, len(token_ids), WIDTH):
        ends = range(start + 1, min(start + WIDTH, len(token_ids)) + 1)
        rows = tuple(Row(sequence(token_ids[:end], blocks), i, end - 1, 1) for i, end in enumerate(ends))
        logits[start : ends[-1]] = runner.logits(StepPlan("quality", rows))
    return logits


def is_same_in_company(runner: OpenVINORunner, token_ids: list[int], logits: Logits) -> bool:
    """Whether the text read in one piece, and its last token alone, give the logits that the passes above gave."""
    for end in (20, 64, 100, 300):
        blocks = list(range(100, 100 + -(-end // runner.block_size)))
        text = sequence(token_ids[:end], blocks)
        whole = runner.logits(StepPlan("quality", (Row(text, 0, 0, end),)))[0]
        alone = runner.logits(StepPlan("quality", (Row(text, 0, end - 1, 1),)))[0]
        if not (np.array_equal(whole, logits[end - 1]) and np.array_equal(alone, logits[end - 1])):
            return False
    return True


def log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def perplexity(logits: Logits, token_ids: list[int]) -> float:
    surprises = [-log_softmax(logits[i : i + 1])[0, token_ids[i + 1]] for i in range(len(token_ids) - 1)]
    return math.exp(statistics.fmean(surprises))


def kl_divergence(reference: Logits, logits: Logits) -> float:
    """Mean over positions, in nats; in slices, since a whole text of float64 takes half a gigabyte."""
    sums = []
    for start in range(0, len(logits), WIDTH):
        p, q = log_softmax(reference[start : start + WIDTH]), log_softmax(logits[start : start + WIDTH])
        sums.append((np.exp(p) * (p - q)).sum())
    return float(np.sum(sums)) / len(logits)


# --- speed ---------------------------------------------------------------------------------------
def speed(runner: OpenVINORunner, num_rows: int, num_tokens: int, repeats: int) -> float:
    """Generated tokens per second, greedy, prompts included; the median of some runs."""
    rates = []
    for _ in range(repeats):
        sequences = [
            sequence(list(range(1000 + i, 1000 + i + SPEED_PROMPT_TOKENS)), [3 * i, 3 * i + 1, 3 * i + 2])
            for i in range(num_rows)
        ]
        start = time.perf_counter()
        for _ in range(num_tokens):
            step(runner, sequences)
        rates.append(num_rows * num_tokens / (time.perf_counter() - start))
    return statistics.median(rates)


def step(runner: OpenVINORunner, sequences: list[Sequence]) -> None:
    rows = tuple(Row(s, i, s.num_computed_tokens, s.num_uncomputed_tokens) for i, s in enumerate(sequences))
    result = runner.run(StepPlan("quality", rows))
    for s in sequences:
        s.num_computed_tokens = s.num_tokens
        s.token_ids.append(result.tokens[s.sequence_id].token_id)


def sequence(token_ids: list[int], block_ids: list[int]) -> Sequence:
    return Sequence(
        sequence_id=f"{block_ids[0]}-{len(token_ids)}",
        request_id="quality",
        policy="quality",
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        params=SamplingParams(),
        seed=0,
        eos_token_ids=frozenset(),
        block_ids=block_ids,
    )


# --- the table -----------------------------------------------------------------------------------
def machine() -> dict[str, object]:
    features = cpu_features()
    return {
        "cpu": cpu_name(),
        "threads": usable_cpus(),
        "features": [name for name in NOTABLE_FEATURES if name in features],
    }


def heading() -> str:
    widths = " | ".join(f"N={n}" for n in WIDTHS)
    return (
        f"| precision | arithmetic / activation group / KV | {widths} | perplexity | KL | top-1 "
        "| same in company | start s |\n"
        f"|---|---|{'---|' * (len(WIDTHS) + 5)}"
    )


def row_of(line: Line) -> str:
    speeds = " | ".join(f"{line.tokens_per_s[n]:.0f}" for n in WIDTHS)
    return (
        f"| {line.precision} | {line.arithmetic} / {line.activation_group} / {line.kv_cache} | {speeds} "
        f"| {line.perplexity:.3f} | {line.kl_divergence:.4f} | {line.top1_agreement:.3f} "
        f"| {'yes' if line.same_in_company else 'no'} | {line.start_s:.1f} |"
    )


if __name__ == "__main__":
    main()
