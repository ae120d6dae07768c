"""What the server is set to, as gauges: an alert compares with them instead of repeating an option's value.

Owns their names and help texts.  Ignorant of what is used of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from everystep.config import Settings
from everystep.messages import EngineInfo


class Limits(Collector):
    """Those of the engine are there once it is: ``info`` is ``None`` before."""

    def __init__(self, settings: Settings, info: EngineInfo | None) -> None:
        self._settings = settings
        self._info = info

    def collect(self) -> Iterator[Metric]:
        settings = self._settings
        gauges = {
            "everystep_max_queue_requests": ("Most requests that may wait, in all lanes.", settings.max_queue),
            "everystep_max_queue_tokens": (
                "Most prompt tokens of requests that may wait, in all lanes.",
                settings.max_queue_tokens,
            ),
            "everystep_max_http_connections": ("Most open connections, idle ones too.", settings.max_connections),
            "everystep_stall_timeout_seconds": (
                "Without a step for so long, though there is work, the worker is replaced.",
                settings.stall_timeout,
            ),
        }
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value)
        if self._info is not None:
            yield from _of_engine(self._info)


def _of_engine(info: EngineInfo) -> Iterator[Metric]:
    seats = GaugeMetricFamily("everystep_seats", "Places in a lane's batch.", labels=["policy"])
    for policy, num_seats in info.seats.items():
        seats.add_metric([policy], num_seats)
    yield seats
    yield GaugeMetricFamily("everystep_kv_cache_blocks", "Blocks of the KV cache, used or not.", info.num_blocks)
    words = "Size of the KV cache when every block is in use."
    yield GaugeMetricFamily("everystep_kv_cache_bytes", words, info.num_blocks * info.kv_block_bytes)
    yield GaugeMetricFamily("everystep_max_model_len_tokens", "Most tokens of a request, prompt and answer together.",
                            info.max_model_len)  # fmt: skip
