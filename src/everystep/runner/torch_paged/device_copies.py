"""Copies from the host to the device that wait for nobody.

Owns the pinning.  torch's own allocator keeps pinned memory that a copy still reads, so nobody here counts buffers.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy on ``device``, behind the work that is queued there; on a CPU the array itself as a tensor."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu" or not len(array):
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def host_bytes(num_bytes: int, device: torch.device) -> Tensor:
    """``[num_bytes]`` uint8 on the host, pinned where the device reads such memory by itself."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type != "cpu")


class Arrival:
    """The moment at which all that was queued on the device so far is done."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()
