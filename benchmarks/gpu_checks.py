"""Is the GPU path right?  The core of ``tests/runner/test_gpu_runner.py`` for machines without pytest.

    PYTHONPATH=src:tests python benchmarks/gpu_checks.py [--device cuda|cpu]

On a CPU it tries the same with stand-ins for graphs.  Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from everystep.runner.torch_paged.cuda_attention import choose_kernel
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_needs import NotingKernel, needs_of
from everystep.runner.torch_paged.device_sampling import DeviceSampler
from everystep.runner.torch_paged.loading import load
from everystep.runner.torch_paged.placement import Placement
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence
from runner.device_bench import (
    FAMILIES,
    PathRunner,
    greedy,
    last_logits,
    make_runner,
    references,
    save_tiny,
    serve,
)

POLICIES = ("static", "per_token", "continuous")
MAX_OFF = 0.06  # root mean square of bf16 logits' difference, by their spread


def family_tokens(folder: Path, device: torch.device) -> None:
    """f32, every family, through graphs: the tokens of generate()."""
    runner, expected = make_runner(folder, device, max_rows=8), references(folder, device, 6)
    outputs, _, _ = serve(runner, "continuous", [case.prompt for case in expected], greedy(), num_seats=8)
    assert outputs == [list(case.output) for case in expected], "other tokens than generate()"
    assert runner.path.graphs is not None, "no graphs"
    assert len(runner.path.graphs) > 3, "the model wasn't captured"


def family_kernel(folder: Path, device: torch.device) -> None:
    """bf16: the chosen kernel's logits against plain attention's."""
    noting = NotingKernel(GatheredAttention())
    load(folder, Placement(device, "bf16"), noting)
    choice = choose_kernel(needs_of(noting.calls, torch.bfloat16), device)
    print(f"    {choice.kernel.name}, blocks of {choice.block_size}")
    paged = make_runner(folder, device, precision="bf16", choice=choice, max_rows=4)
    plain = make_runner(folder, device, precision="bf16", max_rows=4)
    prompt = [3 + (i * 37) % 150 for i in range(57)]
    for chunk in (57, 16, 1):
        found, expected = last_logits(paged, prompt, chunk), last_logits(plain, prompt, chunk)
        off = float((found - expected).square().mean().sqrt() / expected.std())
        assert off < MAX_OFF, f"chunks of {chunk} are off by {off:.3f} of the spread"


def policies(runner: PathRunner, device: torch.device) -> None:
    """Every policy at N = 1, 4, 16, 64; then preemption and shared prefixes."""
    cases = references(runner.folder, device, 64)
    for policy in POLICIES:
        for n in (1, 4, 16, 64):
            seats = 64 if policy == "continuous" else 4
            outputs, _, _ = serve(runner, policy, [c.prompt for c in cases[:n]], greedy(), num_seats=seats, budget=96)
            assert outputs == [list(case.output) for case in cases[:n]], f"{policy} at N={n}"
    prompts = [case.prompt for case in cases[:8]] * 2
    outputs, lane, _ = serve(runner, "continuous", prompts, greedy(), num_seats=8, num_blocks=17, budget=24)
    assert outputs == [list(case.output) for case in cases[:8]] * 2, "after preemption"
    assert lane.num_preemptions > 0, "nothing was preempted"
    assert lane.num_prefix_hit_tokens > 0, "nothing was shared"


def sampler(device: torch.device) -> None:
    """The device's draws against a CPU's."""
    recipes = [SamplingParams(), SamplingParams(temperature=1.0), SamplingParams(temperature=0.8, top_p=0.9, top_k=40)]
    rows = [
        Row(Sequence(str(i), "r", "p", [1, i], 2, recipes[i % 3], i, frozenset()), i, 1, 1) for i in range(600)
    ]  # fmt: skip
    logits = torch.randn(600, 5000, generator=torch.Generator().manual_seed(4)) * 3
    here, there = (DeviceSampler(5000, one).sample(logits.to(one), rows) for one in (torch.device("cpu"), device))
    differing = [name for name in here.tokens if here.tokens[name] != there.tokens[name]]
    assert len(differing) <= 3, f"{len(differing)} of 600 differ"
    assert all(int(name) % 3 for name in differing), "a greedy row differs"


def every_check(folder: Path, device: torch.device) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "sampler", partial(sampler, device)
    for family in FAMILIES:
        saved = save_tiny(family, folder / family)
        yield f"{family}: tokens in f32", partial(family_tokens, saved, device)
        yield f"{family}: kernel in bf16", partial(family_kernel, saved, device)
    yield "policies", lambda: policies(make_runner(folder / "llama", device), device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "torch finds no CUDA device here\n")
    num_failed = 0
    with tempfile.TemporaryDirectory() as name:
        for title, check in every_check(Path(name), device):
            try:
                check()
                print(f"right  {title}", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"WRONG  {title}", flush=True)
                num_failed += 1
    print(f"{num_failed} wrong")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
