"""vLLM's ``AsyncLLM`` from what we are told, and what it became.

Owns every use of vLLM's own modules.  Runs in vLLM's environment only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from everystep.engine.vllm.host_args import LANE, HostArgs
from everystep.engine.vllm.outputs import RequestDelta
from everystep.engine.vllm.sampling import engine_params
from everystep.messages import EngineInfo, Submit, VllmLoad
from everystep.sampling_params import SamplingParams

PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
WARM_UP_PROMPT = (1, 2, 3, 4)  # any ids do
SHUTDOWN_S = 3.0  # vLLM's processes get this long to leave by themselves


class BadArgument(Exception):
    """An engine argument that this vLLM doesn't have."""


class VllmEngine:
    """A running ``AsyncLLM``.  Make it on the event loop that will use it."""

    def __init__(self, args: HostArgs, on_load: Callable[[VllmLoad], None]) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        start_s = time.monotonic()
        self._llm = AsyncLLM.from_engine_args(engine_args(args), stat_loggers=[_load_logger(on_load)])
        self._build_s = time.monotonic() - start_s
        self._args = args
        self._warm_up_s = 0.0

    async def warm_up(self) -> None:
        """One token, so that no client pays for a first time."""
        start_s = time.monotonic()
        params = SamplingParams(max_tokens=2, temperature=1.0, ignore_eos=True)
        async for _ in self.generate(Submit("warm-up", "warm-up", LANE, WARM_UP_PROMPT, params, 0, (), 0, 0.0)):
            pass
        self._warm_up_s = time.monotonic() - start_s

    async def generate(self, submit: Submit) -> AsyncIterator[RequestDelta]:
        """Deltas of one sequence.  Closing it aborts the request in vLLM."""
        from vllm import SamplingParams as VllmParams
        from vllm.sampling_params import RequestOutputKind

        params = VllmParams(
            **engine_params(submit), detokenize=False, output_kind=RequestOutputKind.DELTA, skip_clone=True
        )
        prompt = {"prompt_token_ids": list(submit.prompt_ids)}
        async for output in self._llm.generate(prompt, params, submit.sequence_id, priority=submit.priority):
            yield output

    def is_refusal(self, error: Exception) -> bool:
        from vllm.exceptions import VLLMClientError

        return isinstance(error, VLLMClientError | ValueError)

    def is_dead(self) -> bool:
        return bool(self._llm.errored)

    def close(self) -> None:
        """End vLLM's processes."""
        self._llm.shutdown(timeout=SHUTDOWN_S)

    def info(self) -> EngineInfo:
        """What vLLM made of its arguments."""
        config = self._llm.vllm_config
        cache, model = config.cache_config, config.model_config
        num_seats = config.scheduler_config.max_num_seqs
        num_blocks = cache.num_gpu_blocks or num_seats * -(-model.max_model_len // cache.block_size)
        dtype = str(model.dtype).removeprefix("torch.")
        spawn_s = time.monotonic() - self._args.spawned_s - self._build_s - self._warm_up_s
        parts_s = {"start process": spawn_s, "build vLLM": self._build_s, "warm up": self._warm_up_s}
        return EngineInfo(
            model=self._args.served_name,
            runner="vllm",
            precision=PRECISIONS.get(dtype, dtype),
            num_threads=self._args.num_threads,
            block_size=cache.block_size,
            num_blocks=num_blocks,
            kv_block_bytes=(cache.kv_cache_memory_bytes or 0) // num_blocks,
            max_model_len=model.max_model_len,
            seats={LANE: num_seats},
            start_up_s={name: round(part_s, 3) for name, part_s in parts_s.items()},
        )


def engine_args(args: HostArgs) -> Any:
    """``AsyncEngineArgs``.  What we set for a CPU alone gives way to what the user named."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    for name in args.extra:
        if name not in known:
            raise BadArgument(f"vllm_arg {name!r}: this vLLM has no such engine argument")
    return AsyncEngineArgs(**(args.engine | _for_cpu(args) | args.extra))


def _for_cpu(args: HostArgs) -> dict[str, Any]:
    """vLLM on a CPU would take nine tenths of the memory, and 16-bit floats whether the CPU has them or not."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return {}
    chosen: dict[str, Any] = {}
    if args.engine.get("kv_cache_memory_bytes") is None:
        chosen["kv_cache_memory_bytes"] = args.cpu_kv_cache_bytes
    if args.engine["dtype"] == "auto":
        chosen["dtype"] = args.cpu_dtype
    return chosen


def _load_logger(on_load: Callable[[VllmLoad], None]) -> Any:
    """A factory of vLLM's stat loggers; one that passes the scheduler's counts on."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class LoadLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM isn't installed where types are checked
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self._num_preemptions = 0
            self._num_hits = 0

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
        ) -> None:
            if iteration_stats is not None:
                self._num_preemptions += iteration_stats.num_preempted_reqs
            if scheduler_stats is not None:
                self._num_hits += scheduler_stats.prefix_cache_stats.hits
                on_load(self._load(scheduler_stats))

        def _load(self, stats: Any) -> VllmLoad:
            num_waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
            usage = float(stats.kv_cache_usage)
            return VllmLoad(stats.num_running_reqs, num_waiting, usage, self._num_preemptions, self._num_hits)

        def log_engine_initialized(self) -> None:
            """Ours says it."""

    return LoadLogger
