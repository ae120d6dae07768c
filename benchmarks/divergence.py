"""How often a precision's greedy text depends on its company, and where: the same prompts alone and in batches.

    python benchmarks/divergence.py [--precisions f32,int8,int8!,bf16,int4] [--sizes 4,16] [--prompts 16] [--tokens 32]

``int8!`` is ``--precision int8 --deterministic``.  Each precision is compared with itself alone (does company change
a text?) and with f32 alone (does the precision?).  Two texts part at the first token that differs.  In f32 and with
``--deterministic`` company must change nothing: the command ends with 1 if it does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everystep import LLM, SamplingParams

TEXT = Path(__file__).with_name("quality.txt")
EXACT = ("f32", "!")  # precisions that promise the same tokens in any company end so
Texts = list[tuple[int, ...]]


@dataclass(frozen=True)
class Line:
    """One precision at one size, against one reference."""

    precision: str
    size: int
    against: str
    num_texts: int
    num_differing: int
    median_first: float | None  # output token, from 1, at which differing texts part

    def row(self) -> str:
        first = "–" if self.median_first is None else f"{self.median_first:g}"
        return (
            f"| {self.precision} | {self.size} | {self.against} | {self.num_differing} of {self.num_texts} | {first} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--precisions", default="f32,int8,int8!")
    parser.add_argument("--sizes", default="4,16", help="texts at once")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("results/divergence.json"))
    arguments = parser.parse_args()
    prompts = prompts_from(TEXT.read_text(encoding="utf-8"), arguments.prompts)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    lines: list[Line] = []
    f32: Texts | None = None
    for precision in arguments.precisions.split(","):
        alone = texts(arguments.model, precision, prompts, 1, arguments.tokens)
        f32 = alone if precision == "f32" else f32
        if f32 is not None and precision != "f32":
            lines.append(compared(precision, 1, "f32 alone", f32, alone))
        for size in sizes:
            crowd = texts(arguments.model, precision, prompts, size, arguments.tokens)
            lines.append(compared(precision, size, "itself alone", alone, crowd))
            print(lines[-1].row(), file=sys.stderr, flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")
    print(
        "| precision | at once | against | texts that differ | first token that does, median |\n|---|---|---|---|---|"
    )
    print("\n".join(line.row() for line in lines))
    broken = [line for line in lines if line.precision.endswith(EXACT) and line.size > 1 and line.num_differing]
    sys.exit(1 if broken else 0)


def prompts_from(text: str, num: int) -> list[str]:
    """Beginnings of different lengths, from places all over the text."""
    words = text.split()
    step = len(words) // num
    return [" ".join(words[i * step : i * step + 4 + 3 * (i % 8)]) for i in range(num)]


def texts(model: str, precision: str, prompts: Sequence[str], size: int, num_tokens: int) -> Texts:
    """Greedy tokens of each prompt, so many of them at once in the continuous lane."""
    exact: dict[str, Any] = {"precision": precision.removesuffix("!"), "deterministic": precision.endswith("!")}
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    with LLM(model, max_num_seqs=size, prefix_cache=False, **exact) as llm:
        return [tuple(out.token_ids) for out in llm.generate(list(prompts), params, policy="continuous")]


def compared(precision: str, size: int, against: str, reference: Texts, found: Texts) -> Line:
    firsts = [
        next(i for i, (a, b) in enumerate(zip(expected, got, strict=True), start=1) if a != b)
        for expected, got in zip(reference, found, strict=True)
        if expected != got
    ]
    return Line(precision, size, against, len(found), len(firsts), statistics.median(firsts) if firsts else None)


if __name__ == "__main__":
    main()
