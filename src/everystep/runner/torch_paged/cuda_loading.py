"""From a Hugging Face folder to a path on a GPU: loaded, its needs seen, a kernel chosen.

Owns the order.  Ignorant of steps.
"""

from __future__ import annotations

from pathlib import Path

from everystep.runner.torch_paged.cuda_attention import choose_kernel
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_needs import NotingKernel, needs_of
from everystep.runner.torch_paged.cuda_path import CudaPath
from everystep.runner.torch_paged.loading import LoadedModel, load
from everystep.runner.torch_paged.placement import Placement


def load_on_cuda(folder: Path, placement: Placement, gpu_memory_utilization: float) -> tuple[LoadedModel, CudaPath]:
    """The trial pass over plain SDPA shows what the layers ask of a kernel."""
    noting = NotingKernel(GatheredAttention())
    loaded = load(folder, placement, noting)
    choice = choose_kernel(needs_of(noting.calls, placement.dtype), placement.device)
    return loaded, CudaPath(loaded, choice, gpu_memory_utilization=gpu_memory_utilization)
