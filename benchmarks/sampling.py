"""What drawing the tokens of one step costs, by number of rows and by what the rows ask for.

    python benchmarks/sampling.py [--vocab 49152] [--threads 2] [--repeats 15]

First two ceilings: an argmax, which no sampler can beat, and sorting every row, which is what top-p costs if done
plainly.  Then our sampler.  Logits are synthetic: ``peaked`` has a broad floor and some dozens of likely tokens, as a
language model's do; ``flat`` is the worst case, where every block of the vocabulary holds part of the nucleus.
Medians in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling import Sampler
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence

ROW_COUNTS = (1, 4, 16, 64)
HISTORY_TOKENS = 500
RECIPES = {
    "greedy": SamplingParams(max_tokens=1000),
    "temperature": SamplingParams(max_tokens=1000, temperature=0.8),
    "top_p=0.9": SamplingParams(max_tokens=1000, temperature=0.8, top_p=0.9),
    "top_k=50": SamplingParams(max_tokens=1000, temperature=0.8, top_k=50),
    "min_p=0.05": SamplingParams(max_tokens=1000, temperature=0.8, min_p=0.05),
    "greedy, penalties": SamplingParams(max_tokens=1000, repetition_penalty=1.1, presence_penalty=0.5),
    "greedy, logprobs=5": SamplingParams(max_tokens=1000, logprobs=5),
    "everything": SamplingParams(
        max_tokens=1000,
        temperature=0.8,
        top_p=0.9,
        top_k=50,
        min_p=0.02,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=0.1,
        logit_bias={5: 1.0, 9: -1.0},
        logprobs=5,
    ),
}


def peaked(num_rows: int, vocab: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (num_rows, vocab)).astype(np.float32)
    for row in logits:
        row[rng.integers(0, vocab, 60)] += 5 + rng.exponential(2, 60)
    return logits


def flat(num_rows: int, vocab: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 0.5, (num_rows, vocab)).astype(np.float32)


def rows_of(params: SamplingParams, num_rows: int, vocab: int) -> list[Row]:
    rng = np.random.default_rng(1)
    rows = []
    for i in range(num_rows):
        tokens = rng.integers(0, vocab, HISTORY_TOKENS).tolist()
        sequence = Sequence(str(i), "r", "continuous", tokens, HISTORY_TOKENS // 2, params, i, frozenset({2}))
        rows.append(Row(sequence, seat=i, start=HISTORY_TOKENS - 1, num_new_tokens=1))
    return rows


def sort_every_row(logits: NDArray[np.float32]) -> None:
    """Top-p done plainly: sort, cumulate, cut, draw."""
    for row in logits:
        order = np.argsort(-row)
        weights = np.exp(row[order] - row[order[0]])
        cumulated = np.cumsum(weights, dtype=np.float64)
        nucleus = int(np.searchsorted(cumulated, 0.9 * cumulated[-1])) + 1
        np.searchsorted(cumulated[:nucleus], 0.5 * cumulated[nucleus - 1])


def median_ms(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def table(logits: NDArray[np.float32], sampler: Sampler, repeats: int) -> None:
    vocab = logits.shape[1]

    def line(name: str, work_on: Callable[[int], Callable[[], object]], repeats: int = repeats) -> None:
        cells = [f"{median_ms(work_on(n), repeats):9.2f}" for n in ROW_COUNTS]
        print(f"{name:24s}", *cells, flush=True)

    def sampling(params: SamplingParams, num_rows: int) -> Callable[[], object]:
        rows, chosen = rows_of(params, num_rows, vocab), logits[:num_rows]
        return lambda: sampler.sample(chosen, rows)

    print(f"{'rows':24s}", *(f"{n:9d}" for n in ROW_COUNTS))
    line("(argmax alone)", lambda n: lambda: logits[:n].argmax(axis=1))
    line("(sort every row)", lambda n: lambda: sort_every_row(logits[:n]), repeats=3)
    for name, params in RECIPES.items():
        line(name, lambda n, params=params: sampling(params, n))  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of sampling one step, in milliseconds")
    parser.add_argument("--vocab", type=int, default=49_152)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    sampler = Sampler(options.vocab, options.threads)
    for name, make in (("peaked", peaked), ("flat", flat)):
        print(f"\n{name} logits, vocabulary {options.vocab}, {options.threads} threads, median ms")
        table(make(max(ROW_COUNTS), options.vocab), sampler, options.repeats)


if __name__ == "__main__":
    main()
