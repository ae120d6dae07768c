"""On which device a model computes, and in which number format.

Owns what ``--device`` and ``--precision`` mean to the torch runner.  Ignorant of models.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import torch

from everystep.errors import ConfigError, UnsupportedOption
from everystep.runner.threads import cpu_features

BF16_FEATURES = frozenset({"avx512_bf16", "amx_bf16"})  # either will do; as /proc/cpuinfo calls them
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and in what the forward pass runs."""

    device: torch.device
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]


def resolve_placement(device: str, precision: str, *, cpu: Set[str] | None = None) -> Placement:
    """Raises :class:`ConfigError` for a device that isn't there, :class:`UnsupportedOption` for a precision."""
    resolved = _device(device)
    return Placement(resolved, _precision(precision, resolved, cpu_features() if cpu is None else cpu))


def _device(name: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ConfigError(f"device='cuda', but torch {torch.__version__} finds no CUDA device here", param="device")
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name!r} is none of auto, cpu, cuda", param="device")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and has_cuda) else "cpu")


def _precision(name: str, device: torch.device, cpu: Set[str]) -> str:
    if name == "auto":
        has_bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else bool(cpu & BF16_FEATURES)
        return "bf16" if has_bf16 else "f32"
    if name not in DTYPES:
        raise UnsupportedOption(
            f"precision={name!r}: the torch runner computes in {' or '.join(DTYPES)}; int8 and int4 are the openvino "
            "runner's",
            param="precision",
        )
    return name
