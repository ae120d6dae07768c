"""``vllm.v1.metrics.loggers``."""

from __future__ import annotations


class StatLoggerBase:
    pass
