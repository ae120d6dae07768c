"""Continue some prompts without a server.

python examples/offline_generate.py
"""

from __future__ import annotations

import sys

from everystep import LLM, SamplingParams

PROMPTS = ["The capital of France is", "1, 2, 3, 4,", "Once upon a time"]


def main(model: str = "smollm2-135m") -> None:
    with LLM(model, max_model_len=256) as llm:
        for out in llm.generate(PROMPTS, SamplingParams(max_tokens=12)):
            print(f"{out.prompt!r} → {out.text!r} ({out.finish_reason})")


if __name__ == "__main__":
    main(*sys.argv[1:])
