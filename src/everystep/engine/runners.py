"""Which runner a server gets, and what it can't do together with which settings.

Owns the choice behind ``auto`` and the refusal of options that the chosen runner doesn't have.  Ignorant of lanes and
caches.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from everystep.architecture import Checkpoint
from everystep.checkpoint import default_cache_dir, hf_folder
from everystep.config import Settings
from everystep.errors import EngineUnavailable, UnsupportedModel, UnsupportedOption
from everystep.types import Runner

TORCH_RUNNERS = ("torch", "hf-generate")
OWN_LANES = {"hf-generate": ("static",), "vllm": ("vllm",)}  # of runners that can't serve all three
TORCH_PRECISIONS = ("auto", "f32", "bf16")
INSTALL = "pip install 'everystep[torch]'"
GPU_MARK = Path("/proc/driver/nvidia/version")
# Options of some runners only: refused where somebody gave one to another.
ONLY_FOR: dict[str, tuple[str, ...]] = {
    "deterministic": ("openvino",),
    "device": ("torch",),
    "gpu_memory_utilization": ("torch", "vllm"),
}


def cache_dir(settings: Settings) -> Path:
    return settings.cache_dir or default_cache_dir()


def check_settings(settings: Settings) -> None:
    """Refuse what doesn't go together, before anything is opened.  Raises :class:`UnsupportedOption`."""
    runner = settings.runner
    for name, runners in ONLY_FOR.items():
        is_given = (
            name in settings.model_fields_set and getattr(settings, name) != type(settings).model_fields[name].default
        )
        has_vllm = "vllm" in runners and settings.vllm_python is not None
        if is_given and runner not in (*runners, "auto") and not has_vllm:
            raise UnsupportedOption(
                f"{name} is an option of runner {' and '.join(runners)}; runner={runner!r} doesn't have it", param=name
            )
    if settings.vllm_python is not None and settings.vllm_url is not None:
        raise UnsupportedOption(
            "vllm_python and vllm_url exclude each other: start a vLLM here, or use one that runs", param="vllm_url"
        )
    lanes = OWN_LANES.get(runner)
    if lanes and "default_policy" in settings.model_fields_set and settings.default_policy not in lanes:
        raise UnsupportedOption(
            f"default_policy={settings.default_policy!r}: runner={runner!r} serves the lane {lanes[0]} only",
            param="default_policy",
        )
    if runner in TORCH_RUNNERS:
        if settings.precision not in TORCH_PRECISIONS:
            raise UnsupportedOption(
                f"precision={settings.precision!r}: runner={runner!r} computes in f32 or bf16", param="precision"
            )
        _require_torch(runner)


def choose_runner(settings: Settings, checkpoint: Checkpoint) -> str:
    """The runner's name, ``auto`` resolved: torch on a GPU, else OpenVINO, else torch for models without a graph.

    Raises :class:`UnsupportedModel` for a model that the named runner doesn't compute, :class:`EngineUnavailable` for
    libraries that aren't installed.
    """
    if settings.runner not in ("auto", "openvino"):
        return settings.runner
    if settings.runner == "auto" and _prefers_torch(settings):
        _require_torch("torch")
        return "torch"
    try:
        checkpoint.read_weights()  # which checks every shape
    except UnsupportedModel as error:
        if settings.runner == "openvino" or settings.deterministic:
            raise UnsupportedModel(f"{error.message} (--runner torch may compute it)") from error
        if not has_torch():
            words = f"{error.message}; --runner torch may compute it: {INSTALL}"
            raise UnsupportedModel(words) from error
        return "torch"
    return "openvino"


def build_runner(settings: Settings, checkpoint: Checkpoint) -> Runner:
    """The runner that the settings name.  Each imports its libraries where it runs, and only there."""
    return BUILDERS[choose_runner(settings, checkpoint)](settings, checkpoint)


def _fake(settings: Settings, checkpoint: Checkpoint) -> Runner:
    from everystep.runner.fake import FakeRunner

    return FakeRunner(vocab_size=checkpoint.outline.vocab_size)


def _openvino(settings: Settings, checkpoint: Checkpoint) -> Runner:
    from everystep.runner.openvino_runner import OpenVINORunner

    return OpenVINORunner(
        checkpoint,
        precision=settings.precision,
        deterministic=settings.deterministic,
        num_threads=settings.threads,
        cache_dir=cache_dir(settings),
    )


def _torch(settings: Settings, checkpoint: Checkpoint) -> Runner:
    from everystep.runner.torch_paged import TorchRunner

    return TorchRunner(
        hf_folder(checkpoint, cache_dir(settings)),
        precision=settings.precision,
        device=settings.device,
        num_threads=settings.threads,
        gpu_memory_utilization=settings.gpu_memory_utilization,
    )


def _generate(settings: Settings, checkpoint: Checkpoint) -> Runner:
    from everystep.runner.generate import GenerateRunner

    return GenerateRunner(
        hf_folder(checkpoint, cache_dir(settings)), precision=settings.precision, num_threads=settings.threads
    )


def _vllm(settings: Settings, checkpoint: Checkpoint) -> Runner:
    raise UnsupportedOption(
        "runner='vllm' schedules for itself and runs in everystep serve only; offline, use vLLM's own LLM class",
        param="runner",
    )


BUILDERS: dict[str, Callable[[Settings, Checkpoint], Runner]] = {
    "fake": _fake,
    "openvino": _openvino,
    "torch": _torch,
    "hf-generate": _generate,
    "vllm": _vllm,
}


def has_torch() -> bool:
    """Whether torch and transformers are installed; neither is imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def _prefers_torch(settings: Settings) -> bool:
    """Asked for a GPU, or has one that torch may use and nothing that speaks against it."""
    if settings.device == "cuda":
        return True
    is_free_to = (
        settings.device == "auto" and not settings.deterministic and settings.precision in ("auto", "f32", "bf16")
    )
    return is_free_to and GPU_MARK.exists() and has_torch()


def _require_torch(runner: str) -> None:
    if not has_torch():
        raise EngineUnavailable(
            f"runner={runner!r} needs torch and transformers, which aren't installed here: {INSTALL}"
        )
