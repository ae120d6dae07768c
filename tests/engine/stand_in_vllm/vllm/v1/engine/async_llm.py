"""``vllm.v1.engine.async_llm``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace as Fields
from typing import Any

LOOK_S = 0.01
FIRST_TOKEN, NUM_TOKENS = 40, 50  # plain letters of the tiny models' tokenizers


class AsyncLLM:
    def __init__(self, args: Any, logger: Any) -> None:
        if gate := os.environ.get("STAND_IN_GATE"):
            while not Path(gate).exists():
                time.sleep(LOOK_S)
        if args.extra == "break":
            print("(EngineCore pid=1) ERROR [core.py] ValueError: no room for the KV cache", flush=True)
            raise RuntimeError("Engine core initialization failed. See root cause above.")
        self._core = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
        self._logger = logger
        self._num_running = 0
        self.vllm_config = Fields(
            cache_config=Fields(block_size=16, num_gpu_blocks=1000, kv_cache_memory_bytes=args.kv_cache_memory_bytes),
            model_config=Fields(dtype=f"torch.{args.dtype}", max_model_len=args.max_model_len),
            scheduler_config=Fields(max_num_seqs=args.max_num_seqs),
        )

    @classmethod
    def from_engine_args(cls, args: Any, stat_loggers: list[Any]) -> AsyncLLM:
        return cls(args, stat_loggers[0](None, 0))

    @property
    def errored(self) -> bool:
        return self._core.poll() is not None

    def shutdown(self, timeout: float | None = None) -> None:
        self._core.kill()
        self._core.wait()

    async def generate(self, prompt: Any, params: Any, request_id: str, *, priority: int = 0) -> AsyncIterator[Any]:
        """One token a turn of the loop, until ``max_tokens``."""
        fields, last = params.fields, prompt["prompt_token_ids"][-1]
        self._num_running += 1
        self._record()
        scheduled_s = time.monotonic()
        try:
            for i in range(fields["max_tokens"]):
                await asyncio.sleep(LOOK_S if fields["max_tokens"] > 100 else 0)
                if self.errored:
                    raise RuntimeError("EngineCore encountered an issue.")
                is_last = i + 1 == fields["max_tokens"]
                token_id = FIRST_TOKEN + (last + i) % NUM_TOKENS
                delta = Fields(token_ids=[token_id], logprobs=None, finish_reason="length" if is_last else None)
                yield Fields(outputs=[delta], num_cached_tokens=0, metrics=Fields(scheduled_ts=scheduled_s))
        finally:
            self._num_running -= 1
            self._record()

    def _record(self) -> None:
        stats = Fields(
            num_running_reqs=self._num_running,
            num_waiting_reqs=0,
            num_skipped_waiting_reqs=0,
            kv_cache_usage=self._num_running / 100,
            prefix_cache_stats=Fields(hits=1),
        )
        self._logger.record(stats, Fields(num_preempted_reqs=0))
