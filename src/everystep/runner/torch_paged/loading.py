"""From a Hugging Face folder to a model whose attention is ours, checked.

Owns the loading, the length that a text may have, and the order of the checks.  Ignorant of plans and steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel

from everystep.errors import ModelError, UnsupportedModel
from everystep.runner.torch_paged.layer_caches import LayerShape
from everystep.runner.torch_paged.paged_attention import PAGED, register
from everystep.runner.torch_paged.placement import Placement
from everystep.runner.torch_paged.probe import probe_layers
from everystep.runner.torch_paged.refusals import model_class, read_config
from everystep.runner.torch_paged.step_batch import AttentionKernel
from everystep.runner.torch_paged.trial import check_against_eager


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in its place, and what one must know of it."""

    model: PreTrainedModel
    layers: tuple[LayerShape, ...]
    placement: Placement
    vocab_size: int
    max_context_len: int


def load(folder: Path, placement: Placement, kernel: AttentionKernel) -> LoadedModel:
    """Read, probe and try it.  Raises :class:`UnsupportedModel` by name with the reason."""
    config = read_config(folder)
    cls = model_class(folder, config)
    register()
    model = _read(cls, folder, placement)
    max_context_len = _max_context_len(config)
    try:
        layers = probe_layers(model, max_context_len)
        check_against_eager(model, layers, kernel, max_context_len)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"the torch runner can't run {config.model_type} models: {error.message}") from error
    except Exception as error:  # whatever a model's own code may raise when it meets our arguments
        words = f"{type(error).__name__}: {error}"
        raise UnsupportedModel(
            f"the torch runner can't run {config.model_type} models: a trial pass failed with {words}"
        ) from error
    return LoadedModel(model, layers, placement, config.vocab_size, max_context_len)


def _read(cls: type[PreTrainedModel], folder: Path, placement: Placement) -> PreTrainedModel:
    with _quiet():
        try:
            model, info = cls.from_pretrained(
                folder,
                dtype=placement.dtype,
                attn_implementation=PAGED,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise ModelError(f"transformers can't load {folder}: {error}") from error
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise ModelError(f"{folder} lacks {len(names)} of the model's weights, {names[0]} among them")
    # Models that know a padding token look for it in every input, to warn; on a GPU that look waits for the device.
    model.config.pad_token_id = None
    return model.eval().to(placement.device)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar in a server's log."""
    was_shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            transformers.utils.logging.enable_progress_bar()


def _max_context_len(config: PretrainedConfig) -> int:
    """Positions the model was made for, as far as its rotary frequencies are the same for every text.

    ``longrope`` and ``dynamic`` switch frequencies by the longest text of a pass: beyond the border a row's tokens
    would depend on its neighbours.
    """
    made_for = getattr(config, "max_position_embeddings", None)
    if made_for is None:
        raise UnsupportedModel(f"config.json of this {config.model_type} model doesn't say max_position_embeddings")
    limits = [int(made_for)]
    for parameters in _rope_parameters(config):
        if parameters.get("rope_type") == "longrope":
            limits.append(int(parameters.get("original_max_position_embeddings") or limits[0]))
    return min(limits)


def _rope_parameters(config: PretrainedConfig) -> Iterator[dict[str, Any]]:
    """One set for all layers, or one for each type of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    yield from [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
