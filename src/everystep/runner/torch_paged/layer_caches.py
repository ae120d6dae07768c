"""The KV cache's tensors, layer by layer.

Owns their memory and how much of it a block takes.  Ignorant of who uses which block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from everystep.runner.torch_paged.step_batch import LayerCache


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token."""

    num_kv_heads: int
    key_dim: int  # of a head
    value_dim: int

    def token_bytes(self, dtype: torch.dtype) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim) * int(dtype.itemsize)


def block_bytes(layers: Sequence[LayerShape], block_size: int, dtype: torch.dtype) -> int:
    """Bytes of a block over all layers."""
    return block_size * sum(layer.token_bytes(dtype) for layer in layers)


def make_caches(
    layers: Sequence[LayerShape], num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> tuple[LayerCache, ...]:
    """One block more than ``num_blocks``: nobody's, for padding to read and write.  All zeros."""
    caches = []
    for layer in layers:
        shape = (num_blocks + 1, block_size, layer.num_kv_heads)
        keys = _zeros((*shape, layer.key_dim), dtype, device)
        caches.append(LayerCache(keys, _zeros((*shape, layer.value_dim), dtype, device)))
    return tuple(caches)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """On a CPU the kernel's own zero pages, untouched: a large cache costs what it holds."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(shape)
