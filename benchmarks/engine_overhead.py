"""What a step costs outside the forward pass: plan, pack, apply, record, encode, at full seats.

Run ``python benchmarks/engine_overhead.py [--rows 64] [--waiting 200]``.  No model: the runner packs the plan's inputs,
as the real one does, and answers at once.  The sampler has a benchmark of its own.
"""

from __future__ import annotations

import argparse
import statistics
import time

from everystep.config import Settings
from everystep.engine.codec import FrameReader, encode
from everystep.engine.core import EngineCore
from everystep.messages import Submit
from everystep.runner.step_inputs import pack
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.sched.from_settings import build_lanes
from everystep.types import SampledToken, StepPlan, StepResult

PROMPT_TOKENS, NUM_STEPS, NUM_WARM = 32, 1000, 50


class NullRunner:
    """Packs, then draws token 5 for everybody."""

    block_size, kv_block_bytes, vocab_size = 32, 1, 50_000

    def __init__(self) -> None:
        self.pack_s: list[float] = []

    def allocate(self, num_blocks: int) -> None: ...

    def warm_up(self, max_rows: int, max_tokens: int) -> None: ...

    def close(self) -> None: ...

    def run(self, plan: StepPlan) -> StepResult:
        start = time.perf_counter()
        pack(plan.rows, self.block_size)
        self.pack_s.append(time.perf_counter() - start)
        return StepResult({row.sequence.sequence_id: SampledToken(5) for row in plan.rows if row.samples})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=200)
    arguments = parser.parse_args()
    runner, settings = NullRunner(), Settings(max_num_seqs=arguments.rows, max_num_batched_tokens=4096)
    pool = BlockPool(8192, runner.block_size)
    lanes = build_lanes(settings, pool, 8192)
    core = EngineCore(runner=runner, lanes=lanes, pool=pool, now_s=time.monotonic)
    params = SamplingParams(max_tokens=NUM_STEPS + NUM_WARM + 10, ignore_eos=True)
    for i in range(arguments.rows + arguments.waiting):
        prompt = tuple(range(i, i + PROMPT_TOKENS))
        core.submit(Submit(f"gen-{i:028x}-0", f"gen-{i:028x}", "continuous", prompt, params, 0, (0, 2), 0, 0.0))
    step_s, encode_s, decode_s, reader = [], [], [], FrameReader()
    for _ in range(NUM_STEPS + NUM_WARM):
        times = [time.perf_counter()]
        output = core.step()
        times.append(time.perf_counter())
        assert output is not None
        frame = encode(output)
        times.append(time.perf_counter())
        reader.feed(frame)
        times.append(time.perf_counter())
        for figures, begin, end in zip((step_s, encode_s, decode_s), times, times[1:], strict=False):
            figures.append(end - begin)
    print(f"{arguments.rows} decoding rows, {arguments.waiting} waiting; medians of {NUM_STEPS} steps, in ms")
    rows = {
        "core.step with pack": step_s,
        "  of it pack": runner.pack_s,
        "encode": encode_s,
        "decode (API side)": decode_s,
    }
    for name, figures in rows.items():
        print(f"  {name:22}{statistics.median(figures[NUM_WARM:]) * 1e3:7.3f}")
    worker = statistics.median([a + b for a, b in zip(step_s, encode_s, strict=True)][NUM_WARM:])
    print(f"  {'worker, in all':22}{worker * 1e3:7.3f}")


if __name__ == "__main__":
    main()
