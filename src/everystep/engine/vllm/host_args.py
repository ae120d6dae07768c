"""What vLLM's process is told at its start, as JSON on its standard input.

Owns the fields.  Ignorant of settings: runs in vLLM's environment too.
"""

from __future__ import annotations

from typing import Any

import msgspec

LANE = "vllm"


class HostArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``engine`` are vLLM's own engine arguments by name; ``extra`` those that the user named, checked in the host.

    ``epoch_s`` and ``spawned_s`` are on the system-wide monotonic clock.
    """

    served_name: str
    engine: dict[str, Any]
    extra: dict[str, Any]
    cpu_kv_cache_bytes: int  # where no size was asked for and vLLM computes on a CPU
    cpu_dtype: str  # the same for the type
    num_threads: int
    epoch_s: float
    spawned_s: float
