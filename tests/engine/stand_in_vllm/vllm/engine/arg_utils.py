"""``vllm.engine.arg_utils``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class AsyncEngineArgs:
    model: str
    served_model_name: str
    dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    gpu_memory_utilization: float
    seed: int
    scheduling_policy: str
    generation_config: str
    skip_tokenizer_init: bool
    enable_log_requests: bool
    disable_log_stats: bool
    kv_cache_memory_bytes: int | None = None
    max_model_len: int = 512
    enforce_eager: bool = False
    extra: Any = None
