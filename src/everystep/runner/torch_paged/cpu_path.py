"""A step on the CPU: packed, computed, drawn.

Owns the KV cache there and the sampler.  Ignorant of loading and of why these rows run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from everystep.runner.finite import check_finite
from everystep.runner.sampling import Sampler
from everystep.runner.torch_paged.layer_caches import make_caches
from everystep.runner.torch_paged.loading import LoadedModel
from everystep.runner.torch_paged.paged_attention import PagedStep, forward_logits
from everystep.runner.torch_paged.step_batch import AttentionKernel, LayerCache
from everystep.runner.torch_paged.step_packing import pack
from everystep.sampling_params import SamplingParams
from everystep.types import Row, StepResult
from everystep.types import Sequence as TokenSequence

WARM_ROWS = 4


class CpuPath:
    """Implements :class:`everystep.runner.torch_paged.torch_runner.DevicePath`."""

    block_size = 16

    def __init__(self, loaded: LoadedModel, kernel: AttentionKernel, num_threads: int) -> None:
        self._loaded = loaded
        self._kernel = kernel
        self._sampler = Sampler(loaded.vocab_size, num_threads)
        self._caches: tuple[LayerCache, ...] = ()

    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache."""
        placement = self._loaded.placement
        self._caches = make_caches(self._loaded.layers, num_blocks, self.block_size, placement.dtype, placement.device)

    def run(self, rows: Sequence[Row]) -> StepResult:
        """Compute the rows, draw for those that sample."""
        logits = self.logits(rows)
        sampling = [row for row in rows if row.samples]
        if not sampling:
            return StepResult({})
        sampled = self._sampler.sample(logits, sampling)
        return StepResult(sampled.tokens, sampled.errors)

    def logits(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """Logits ``[rows that sample, vocab]``."""
        batch = pack(rows, self.block_size).to(self._loaded.placement.device)
        with torch.inference_mode():
            logits = forward_logits(self._loaded.model, PagedStep(batch, self._caches, self._kernel))
        array: npt.NDArray[np.float32] = logits.float().numpy()
        return array

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """One row, a small batch and a short prompt.  They write into block 0, which nobody has yet."""
        for num_rows, num_tokens in ((1, 1), (min(WARM_ROWS, max_rows), 1), (1, min(self.block_size, max_tokens))):
            params = SamplingParams(max_tokens=1)
            text = TokenSequence("warm", "warm", "warm", [0] * num_tokens, num_tokens, params, 0, frozenset())
            text.block_ids = [0]
            check_finite(self.logits([Row(text, seat, 0, num_tokens) for seat in range(num_rows)]))

    def free_cache_bytes(self) -> int | None:
        """The host's rule holds."""
        return None

    def close(self) -> None:
        """Free the cache."""
        self._sampler.close()
        self._caches = ()
