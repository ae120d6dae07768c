"""``vllm.platforms``."""

from __future__ import annotations


class CpuPlatform:
    def is_cpu(self) -> bool:
        return True


current_platform = CpuPlatform()
