"""OpenVINO GenAI's ContinuousBatchingPipeline, measured within its own process, over JSON lines.

Run as a file, by the Python that has ``openvino-genai``; that Python needs nothing of everystep.  First line out: what
was loaded, and in how many seconds.  Then for each line in,
``{"prompts": [[int]], "max_tokens": [int], "at_s": [float]}``, one item a request, earliest first, a line out:
``{"wall_s": float, "arrivals_s": [[float]], "num_tokens": [int]}``, times from the load's start.  Greedy, end of text
ignored.  There is no HTTP here, which is this contender's advantage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any


class Pipeline:
    """Each request goes in when it is due, between two steps; a step notes which requests got a token."""

    def __init__(self, model: str, max_num_seqs: int, max_num_batched_tokens: int, cache_gib: int) -> None:
        import openvino_genai

        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size, scheduler.max_num_seqs = cache_gib, max_num_seqs
        scheduler.max_num_batched_tokens = max_num_batched_tokens
        self._genai = openvino_genai
        self._pipe = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {})
        name = os.path.basename(os.path.normpath(model))
        self.about = f"ContinuousBatchingPipeline {openvino_genai.get_version()}, in process, on {name}"

    def run(self, prompts: list[list[int]], max_tokens: list[int], at_s: list[float]) -> dict[str, Any]:
        """A request that falls due within a step goes in after it: no pipeline could take it sooner."""
        tensors, configs = self._tensors(prompts), [self._config(limit) for limit in max_tokens]
        turn = Turn(len(prompts))
        while turn.num_added < len(prompts) or self._pipe.has_non_finished_requests():
            while turn.num_added < len(prompts) and at_s[turn.num_added] <= turn.now_s():
                index = turn.num_added
                turn.add(self._pipe.add_request(index, tensors[index], configs[index]), max_tokens[index])
            if self._pipe.has_non_finished_requests():
                self._pipe.step()
                turn.read()
            elif turn.num_added < len(prompts):
                time.sleep(max(0.0, at_s[turn.num_added] - turn.now_s()))
        return {"wall_s": turn.now_s(), "arrivals_s": turn.arrivals_s, "num_tokens": turn.num_tokens}

    def _tensors(self, prompts: list[list[int]]) -> list[Any]:
        import numpy as np
        import openvino as ov

        return [ov.Tensor(np.array([prompt], np.int64)) for prompt in prompts]  # each [1, prompt]

    def _config(self, max_tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        return config


class Turn:
    """One load in progress: who has been added, and what each has got."""

    def __init__(self, num: int) -> None:
        self.arrivals_s: list[list[float]] = [[] for _ in range(num)]
        self.num_tokens = [0] * num
        self.num_added = 0
        self._open: dict[int, tuple[Any, int]] = {}  # index → handle and limit, of those not yet whole
        self._start_s = time.perf_counter()

    def now_s(self) -> float:
        return time.perf_counter() - self._start_s

    def add(self, handle: Any, max_tokens: int) -> None:
        self._open[self.num_added] = (handle, max_tokens)
        self.num_added += 1

    def read(self) -> None:
        """What the step gave."""
        now_s = self.now_s()
        for index, (handle, limit) in list(self._open.items()):
            if handle.can_read():
                self.num_tokens[index] += sum(len(output.generated_ids) for output in handle.read().values())
                self.arrivals_s[index].append(now_s)
                if self.num_tokens[index] >= limit:
                    del self._open[index]


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
        print(json.dumps(pipeline.run(order["prompts"], order["max_tokens"], order["at_s"])), file=out)


if __name__ == "__main__":
    main()
