"""How large the KV cache may be: what memory allows and what the seats can fill, whichever is less.

Owns the arithmetic and the reading of ``/proc/meminfo`` and the cgroup files.  Ignorant of tensors.
"""

from __future__ import annotations

import math
from pathlib import Path

from everystep.errors import ConfigError

GIB = 2**30
SHARE_OF_FREE_MEMORY = 0.5  # the rest is left to activations, to the page cache and to the neighbours
MIN_BLOCKS = 2


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process may still take: free memory, less where a cgroup (v2 or v1) allows less."""
    free = _meminfo_available(proc / "meminfo")
    for limit_name, usage_name in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit, usage = _read_int(cgroup / limit_name), _read_int(cgroup / usage_name)
        if limit is not None and usage is not None:
            free = min(free, max(0, limit - usage))
    return free


def host_cache_bytes() -> int:
    """What a cache in the host's memory may take of what is free now."""
    return int(available_bytes() * SHARE_OF_FREE_MEMORY)


def num_kv_blocks(
    *,
    kv_cache_gib: float | None,
    block_bytes: int,
    block_size: int,
    num_seats: int,
    max_model_len: int,
    budget_bytes: int,
) -> int:
    """Blocks of a cache of at most ``budget_bytes``.

    An explicit size is taken as it is; :class:`ConfigError` if it holds under two blocks.
    """
    if kv_cache_gib is not None:
        num_blocks = int(kv_cache_gib * GIB) // block_bytes
        if num_blocks < MIN_BLOCKS:
            raise ConfigError(
                f"kv_cache_gib={kv_cache_gib:g} holds {num_blocks} blocks of {block_bytes} bytes; "
                f"at least {MIN_BLOCKS} are needed",
                param="kv_cache_gib",
            )
        return num_blocks
    fillable = num_seats * math.ceil(max_model_len / block_size)
    affordable = budget_bytes // block_bytes
    if affordable < MIN_BLOCKS:
        raise ConfigError(
            f"{budget_bytes} bytes are left for the KV cache, whose blocks take {block_bytes}; "
            f"at least {MIN_BLOCKS} are needed"
        )
    return min(fillable, affordable)


def _meminfo_available(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ConfigError(f"{path} has no MemAvailable line")


def _read_int(path: Path) -> int | None:
    """The number in a cgroup file; ``None`` where the file is absent or says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
