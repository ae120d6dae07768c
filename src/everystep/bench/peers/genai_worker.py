"""OpenVINO GenAI's ContinuousBatchingPipeline, measured within its own process, over JSON lines.

Run as a file, by the Python that has ``openvino-genai``; that Python needs nothing of everystep.  First line out: what
was loaded, and in how many seconds.  Then for each line in, ``{"prompts": [[int]], "max_tokens": int}``, a line out:
``{"wall_s": float, "arrivals_s": [[float]], "num_tokens": int}``.  Greedy, end of text ignored.  There is no HTTP here,
which is this contender's advantage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any


class Pipeline:
    """All requests go in at once; then step by step, noting when each request got a token."""

    def __init__(self, model: str, max_num_seqs: int, max_num_batched_tokens: int, cache_gib: int) -> None:
        import openvino_genai

        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = cache_gib, max_num_seqs
        scheduler.max_num_batched_tokens = max_num_batched_tokens
        self._genai = openvino_genai
        self._pipe = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {})
        name = os.path.basename(os.path.normpath(model))
        self.about = f"ContinuousBatchingPipeline {openvino_genai.get_version()}, in process, on {name}"

    def run(self, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
        tensors, config = self._tensors(prompts), self._config(max_tokens)
        start_s = time.perf_counter()
        handles = [self._pipe.add_request(index, tensor, config) for index, tensor in enumerate(tensors)]
        arrivals_s: list[list[float]] = [[] for _ in prompts]
        num_tokens = 0
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            now_s = time.perf_counter() - start_s
            for index, handle in enumerate(handles):
                if handle.can_read():
                    num_tokens += sum(len(output.generated_ids) for output in handle.read().values())
                    arrivals_s[index].append(now_s)
        return {"wall_s": time.perf_counter() - start_s, "arrivals_s": arrivals_s, "num_tokens": num_tokens}

    def _tensors(self, prompts: list[list[int]]) -> list[Any]:
        import numpy as np
        import openvino as ov

        return [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]  # each [1, prompt]

    def _config(self, max_tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    for name in ("--max-num-seqs", "--max-num-batched-tokens", "--cache-gib"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints mustn't disturb the JSON lines
    # OpenVINO reports each import to its maker, from a child process of its own; without the module it doesn't.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    start_s = time.monotonic()
    pipeline = Pipeline(given.model, given.max_num_seqs, given.max_num_batched_tokens, given.cache_gib)
    print(json.dumps({"about": pipeline.about, "start_s": time.monotonic() - start_s}), file=out)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(pipeline.run(order["prompts"], order["max_tokens"])), file=out)


if __name__ == "__main__":
    main()
