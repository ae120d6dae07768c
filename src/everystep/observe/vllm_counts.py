"""What vLLM's own scheduler counts, under names of ours.

Owns the ``everystep_vllm_*`` names.  They say what vLLM says; how its sequences run and wait as we see it is among the
counts of all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from everystep.messages import VllmLoad

VLLM = "vllm"
NONE = VllmLoad(0, 0, 0.0, 0, 0)


class VllmCounts:
    """The last load, and totals that don't fall when a vLLM is replaced by another that counts from 0."""

    def __init__(self) -> None:
        self.load = NONE
        self._num_preemptions_before = 0
        self._num_hits_before = 0

    def take(self, load: VllmLoad | None) -> None:
        """``None``: no vLLM is there.  Counts below the last ones are another vLLM's, which began at 0."""
        if (
            load is None
            or load.num_preemptions < self.load.num_preemptions
            or load.num_prefix_hit_tokens < self.load.num_prefix_hit_tokens
        ):
            self._num_preemptions_before += self.load.num_preemptions
            self._num_hits_before += self.load.num_prefix_hit_tokens
        self.load = load or NONE

    def collect(self) -> Iterator[Metric]:
        load = self.load
        gauges = {
            "everystep_vllm_num_requests_running": ("In vLLM's batch, as its scheduler counts.", load.num_running),
            "everystep_vllm_num_requests_waiting": ("In vLLM's queue, as its scheduler counts.", load.num_waiting),
            "everystep_vllm_kv_cache_usage_ratio": ("vLLM's KV blocks in use, of all.", load.kv_cache_usage),
        }
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value)
        preemptions = self._num_preemptions_before + load.num_preemptions
        yield CounterMetricFamily("everystep_vllm_preemptions", "Requests that vLLM preempted.", preemptions)
        hits = self._num_hits_before + load.num_prefix_hit_tokens
        words = "Tokens that vLLM found in its KV cache instead of computing them."
        yield CounterMetricFamily("everystep_vllm_prefix_cache_hit_tokens", words, hits)
