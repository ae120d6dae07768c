"""A stand-in for torch: the one question that our host asks it."""

from __future__ import annotations


class cpu:  # noqa: N801  # the module's own name
    @staticmethod
    def _is_avx512_bf16_supported() -> bool:
        return False
