"""The few numbers of a vLLM server's ``/metrics`` that we show.

Owns vLLM's names for them.  Ignorant of how the text was fetched.
"""

from __future__ import annotations

from everystep.messages import VllmLoad

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"  # a share, whatever its name says
PREEMPTIONS = "vllm:num_preemptions_total"
HITS = "vllm:prefix_cache_hits_total"


def read_load(text: str) -> VllmLoad:
    """Sums over engines, but the highest usage of any; 0 for what the server doesn't say."""
    values: dict[str, list[float]] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in (RUNNING, WAITING, USAGE, PREEMPTIONS, HITS):
            values.setdefault(name, []).append(float(line.rsplit(" ", 1)[1]))
    return VllmLoad(
        num_running=int(sum(values.get(RUNNING, ()))),
        num_waiting=int(sum(values.get(WAITING, ()))),
        kv_cache_usage=max(values.get(USAGE, ()), default=0.0),
        num_preemptions=int(sum(values.get(PREEMPTIONS, ()))),
        num_prefix_hit_tokens=int(sum(values.get(HITS, ()))),
    )
