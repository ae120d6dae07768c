"""How much of a GPU's memory the KV cache may take: what is left of the allowed share beside the largest step.

Owns the measurement and the arithmetic.  Ignorant of models: it is handed the largest step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from everystep.errors import ConfigError

GIB = 2**30


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of a GPU, seen while its largest step ran.  ``others`` is what isn't torch's own: context, libraries,
    other processes."""

    total: int
    others: int
    peak: int  # of torch's reservations: weights, activations, the step's small cache

    def left_for_cache(self, utilization: float) -> int:
        """Raises :class:`ConfigError` with the numbers where nothing is left."""
        left = int(self.total * utilization) - self.others - self.peak
        if left <= 0:
            raise ConfigError(
                f"gpu_memory_utilization={utilization:g} of {self.total / GIB:.2f} GiB leaves nothing for the KV "
                f"cache: weights and the largest step take {self.peak / GIB:.2f} GiB, the driver and other processes "
                f"{self.others / GIB:.2f} GiB",
                param="gpu_memory_utilization",
            )
        return left


def measure(largest_step: Callable[[], None], device: torch.device) -> GpuMemory:
    """Run the step, and see what it took at most; what it took for a while goes back to the device."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    largest_step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device)
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    torch.cuda.empty_cache()
    return GpuMemory(total, max(0, others), peak)
