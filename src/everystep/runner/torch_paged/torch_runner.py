"""Any causal model of transformers as a runner.

Owns the choice of the device's path and the refusal of rows that are too long.  Ignorant of why these rows run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from everystep.runner.threads import usable_cpus
from everystep.runner.torch_paged.cpu_path import CpuPath
from everystep.runner.torch_paged.cuda_loading import load_on_cuda
from everystep.runner.torch_paged.layer_caches import block_bytes
from everystep.runner.torch_paged.loading import load
from everystep.runner.torch_paged.placement import resolve_placement
from everystep.runner.torch_paged.sdpa_attention import SdpaAttention
from everystep.types import Row, StepPlan, StepResult


class DevicePath(Protocol):
    """How a device computes a step."""

    block_size: int

    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache."""

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run the shapes that will come."""

    def run(self, rows: Sequence[Row]) -> StepResult:
        """Compute the rows, draw for those that sample."""

    def logits(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """``[rows that sample, vocab]``, without drawing."""

    def free_cache_bytes(self) -> int | None:
        """Bytes that the KV cache may take on the device; ``None`` where the host's rule holds."""

    def close(self) -> None:
        """Free what is held."""


class TorchRunner:
    """Implements :class:`everystep.types.Runner`.

    Loads when made.  :class:`UnsupportedModel` for a model that can't run over a paged cache, with the reason;
    :class:`UnsupportedOption` for a precision, :class:`ConfigError` for a device that isn't there.
    """

    name = "torch"
    is_repeatable = True

    def __init__(
        self,
        folder: Path,
        *,
        precision: str = "auto",
        device: str = "auto",
        num_threads: int | None = None,
        gpu_memory_utilization: float = 0.9,
    ) -> None:
        placement = resolve_placement(device, precision)
        self.precision = placement.precision
        self.num_threads = num_threads or usable_cpus()
        torch.set_num_threads(self.num_threads)
        self._path: DevicePath
        if placement.device.type == "cuda":
            loaded, self._path = load_on_cuda(folder, placement, gpu_memory_utilization)
        else:
            kernel = SdpaAttention()
            loaded = load(folder, placement, kernel)
            self._path = CpuPath(loaded, kernel, self.num_threads)
        self.vocab_size, self.max_context_len = loaded.vocab_size, loaded.max_context_len
        self.block_size = self._path.block_size
        self.kv_block_bytes = block_bytes(loaded.layers, self.block_size, placement.dtype)

    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache."""
        self._path.allocate(num_blocks)

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run the shapes that will come, so that no client pays for a first time."""
        self._path.warm_up(max_rows, max_tokens)

    def run(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows: write their KV, draw a token for each row that samples."""
        rows = [row for row in plan.rows if row.end <= self.max_context_len]
        words = f"the text is over the {self.max_context_len} tokens that this model computes alike in any company"
        errors = {row.sequence.sequence_id: words for row in plan.rows if row.end > self.max_context_len}
        if not rows:
            return StepResult({}, errors)
        result = self._path.run(rows)
        return StepResult(result.tokens, {**result.errors, **errors}) if errors else result

    def logits(self, plan: StepPlan) -> npt.NDArray[np.float32]:
        """As :meth:`run`, without drawing: the logits ``[rows that sample, vocab]``.  For measurements."""
        return self._path.logits(plan.rows)

    def free_cache_bytes(self) -> int | None:
        """Bytes that the KV cache may take on the device; ``None`` on a CPU, where the host's rule holds."""
        return self._path.free_cache_bytes()

    def close(self) -> None:
        """Free the cache."""
        self._path.close()
