"""What a folder's files tell already: models that can't run here, and why.

Owns the reasons that are known before any weight is read.  Ignorant of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from everystep.errors import ModelError, UnsupportedModel

KNOWN_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


def read_config(folder: Path) -> PretrainedConfig:
    """The folder's config.  Raises :class:`ModelError` if there is none that transformers reads."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise UnsupportedModel(f"transformers can't read {folder / 'config.json'}: {_first_line(error)}") from error


def model_class(folder: Path, config: PretrainedConfig) -> type[PreTrainedModel]:
    """The class that computes it.  Raises :class:`UnsupportedModel` with the reason where none of ours can."""
    reasons = list(_reasons(folder, config))
    if reasons:
        raise UnsupportedModel(f"the torch runner can't run {config.model_type} models: {'; '.join(reasons)}")
    cls: type[PreTrainedModel] = AutoModelForCausalLM._model_mapping[type(config)]
    return cls


def _reasons(folder: Path, config: PretrainedConfig) -> Iterator[str]:
    if not any(folder.glob("*.safetensors")):
        yield "the folder has no safetensors file, and pickled weights aren't opened"
    if getattr(config, "quantization_config", None) is not None:
        yield "its weights are stored quantised"
    if config.is_encoder_decoder:
        yield "it is an encoder-decoder"
        return
    if getattr(config, "vision_config", None) is not None or getattr(config, "audio_config", None) is not None:
        yield "it is multimodal"
        return
    if type(config) not in AutoModelForCausalLM._model_mapping:
        yield "transformers has no causal language model of that name"
        return
    yield from _class_reasons(AutoModelForCausalLM._model_mapping[type(config)])
    unknown = sorted(set(_layer_types(config)) - KNOWN_LAYER_TYPES)
    if unknown:
        yield f"it has layers of the type {', '.join(unknown)}"


def _class_reasons(cls: Any) -> Iterator[str]:
    if cls._is_stateful:
        yield "it keeps a state beside the KV cache (Mamba, recurrent or hybrid layers)"
    if not cls.is_backend_compatible():
        yield "its attention doesn't go through transformers' attention interface"


def _layer_types(config: PretrainedConfig) -> list[str]:
    return list(getattr(config, "layer_types", None) or [])


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
