"""From our settings to vLLM: where it is, what it is told, and what of our settings it doesn't do.

Owns the choice between a process of ours, a server elsewhere and none.  Ignorant of vLLM's classes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from everystep.architecture import Checkpoint
from everystep.config import Settings
from everystep.engine.memory import host_cache_bytes
from everystep.engine.runners import cache_dir
from everystep.engine.vllm.host_args import LANE, HostArgs
from everystep.engine.vllm.probe import INSTALL, find_vllm
from everystep.engine.vllm.process import VllmProcess
from everystep.engine.worker import WorkerArgs
from everystep.errors import ConfigError, EngineUnavailable, UnsupportedOption
from everystep.runner.threads import cpu_features, usable_cpus

GIB = 2**30
BESIDE_CACHE_BYTES = GIB  # of vLLM's KV cache on a CPU beside our own lanes
ALONE_CACHE_BYTES = 4 * GIB
BF16_FEATURES = {"avx512_bf16", "amx_bf16", "bf16"}  # a CPU without them emulates the type, slowly
DTYPES = {"auto": "auto", "f32": "float32", "bf16": "bfloat16"}
OURS = {"model", "generation_config", "scheduling_policy", "skip_tokenizer_init", "max_logprobs", "logprobs_mode"}


def is_vllm_on(settings: Settings) -> bool:
    """Whether this server has the lane ``vllm``."""
    return settings.runner == "vllm" or settings.vllm_python is not None or settings.vllm_url is not None


def absent_words() -> str:
    """What to do to have it, in one command where that is enough."""
    if importlib.util.find_spec("vllm") is not None:
        return f"vLLM isn't turned on here: everystep serve --vllm-python {sys.executable}"
    return (
        f"vLLM isn't turned on here: install it in an environment of its own, {INSTALL}, then start with "
        "everystep serve --vllm-python PATH (that environment's Python) or --vllm-url URL (a running vLLM server)"
    )


def check_vllm_settings(settings: Settings) -> None:
    """Refuse what can't be, before anything starts.  Raises :class:`UnsupportedOption` or :class:`ConfigError`."""
    if not is_vllm_on(settings):
        if settings.default_policy == LANE:
            raise UnsupportedOption(f"default_policy='vllm': {absent_words()}", param="default_policy")
        if settings.vllm_arg:
            raise UnsupportedOption("vllm_arg needs vllm_python or runner='vllm'", param="vllm_arg")
        return
    extra = parse_args(settings.vllm_arg)
    if settings.vllm_url is not None:
        if extra:
            raise UnsupportedOption("vllm_arg: the server at vllm_url has its own arguments", param="vllm_arg")
        return
    if settings.precision not in DTYPES and "dtype" not in extra:
        raise UnsupportedOption(
            f"precision={settings.precision!r}: vLLM is started with auto, f32 or bf16; "
            "--vllm-arg dtype=float32 sets its own",
            param="precision",
        )


def parse_args(given: tuple[str, ...]) -> dict[str, Any]:
    """``KEY=VALUE`` of each; a value that is JSON is what it says, any other is text."""
    extra: dict[str, Any] = {}
    for entry in given:
        name, is_pair, text = entry.partition("=")
        name = name.strip().replace("-", "_")
        if not is_pair or not name:
            raise ConfigError(f"vllm_arg={entry!r} must be KEY=VALUE", param="vllm_arg")
        if name in OURS or name in extra:
            words = "is set by everystep" if name in OURS else "is given twice"
            raise ConfigError(f"vllm_arg: {name} {words}", param="vllm_arg")
        try:
            extra[name] = json.loads(text)
        except ValueError:
            extra[name] = text
    return extra


def python_of(settings: Settings) -> Path:
    """The Python that has vLLM; ours, unless another is named.  Raises :class:`EngineUnavailable` where ours has none.

    The named one is kept as it is written: a virtual environment's is a link, and where it leads has no vLLM.
    """
    if settings.vllm_python is not None:
        return settings.vllm_python.expanduser().absolute()
    if importlib.util.find_spec("vllm") is None:
        raise EngineUnavailable(f"runner='vllm' needs vLLM: {INSTALL}, or --vllm-python PATH, or --vllm-url URL")
    return Path(sys.executable)


def check_vllm_python(settings: Settings) -> None:
    """Ask the environment for its vLLM, if one is to be started.

    Raises :class:`ConfigError` or :class:`EngineUnavailable` in one line.
    """
    if settings.vllm_url is None and is_vllm_on(settings):
        find_vllm(python_of(settings))


def spawn_vllm(args: WorkerArgs, checkpoint: Checkpoint) -> VllmProcess:
    """Start vLLM with the model as a Hugging Face folder, which is made first where it isn't one.  Blocks."""
    from everystep.checkpoint import hf_folder

    settings, cache = args.settings, cache_dir(args.settings)
    folder = hf_folder(checkpoint, cache)
    return VllmProcess(python_of(settings), host_args(args, folder), cache, cpus_for(settings.threads))


def cpus_for(num_threads: int | None) -> list[int]:
    """The CPUs that so many threads of vLLM's are bound to, one each; none where vLLM is to choose.

    Raises :class:`UnsupportedOption` for more threads than CPUs: vLLM binds each to one.
    """
    if num_threads is None:
        return []
    cpus = sorted(os.sched_getaffinity(0))
    if num_threads > len(cpus):
        raise UnsupportedOption(f"threads={num_threads}: vLLM may use {len(cpus)} CPUs here", param="threads")
    return cpus[:num_threads]


def host_args(args: WorkerArgs, folder: Path) -> HostArgs:
    settings = args.settings
    alone = settings.runner == "vllm"
    cpu_cache = min(ALONE_CACHE_BYTES, host_cache_bytes()) if alone else BESIDE_CACHE_BYTES
    return HostArgs(
        served_name=settings.served_name,
        engine=vllm_engine_args(settings, folder),
        extra=parse_args(settings.vllm_arg),
        cpu_kv_cache_bytes=cpu_cache,
        cpu_dtype="auto" if BF16_FEATURES & cpu_features() else "float32",
        num_threads=settings.threads or max(1, usable_cpus() - 1),  # vLLM itself leaves a core free
        epoch_s=args.epoch_s,
        spawned_s=args.spawned_s,
    )


def vllm_engine_args(settings: Settings, folder: Path) -> dict[str, Any]:
    """Our settings by vLLM's names.  Its tokenizer, logs and a model's default sampling stay off: they are ours."""
    engine: dict[str, Any] = {
        "model": str(folder),
        "served_model_name": settings.served_name,
        "dtype": DTYPES.get(settings.precision, "auto"),
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enable_prefix_caching": settings.prefix_cache,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "seed": settings.seed,
        "scheduling_policy": "priority",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "enable_log_requests": False,
        "disable_log_stats": True,
    }
    if settings.max_model_len is not None:
        engine["max_model_len"] = settings.max_model_len
    if settings.kv_cache_gib is not None:
        engine["kv_cache_memory_bytes"] = int(settings.kv_cache_gib * GIB)
    return engine
