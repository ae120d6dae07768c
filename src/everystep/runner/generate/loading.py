"""A Hugging Face folder as a model of transformers, ready for ``generate()``.

Owns the precisions, the refusal of models that can't run as a rectangle, and what is measured of those that can.
Ignorant of rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from everystep.errors import ConfigError, ModelError, UnsupportedModel, UnsupportedOption
from everystep.runner.generate.rectangle import left_padded

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
OTHER_PRECISIONS = ("int8", "int4")
BF16_FEATURES = frozenset({"avx512_bf16", "amx_bf16"})  # as /proc/cpuinfo calls them
# Models whose causal mask is a table as wide as the context, which a rectangle with its padding may outgrow.
MASK_TABLES = ("gpt_neo", "openai-gpt")
# Share of the largest logit by which padding may move the logits: rounding stays far below, shifted positions above.
PADDING_TOLERANCE = {"f32": 1e-3, "bf16": 0.1}
PROBE = [3, 5, 2, 4]  # tokens that any vocabulary has


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and what the runner must know of it."""

    model: Any  # transformers' PreTrainedModel, in evaluation mode
    vocab_size: int  # logits a row
    max_positions: int | None  # tokens that a text may have; None where the model doesn't say
    token_bytes: int  # bytes of keys and values a token takes over all layers


def resolve_precision(name: str, cpu: Set[str]) -> str:
    """``auto`` is bf16 on a CPU that computes it, else f32.  :class:`UnsupportedOption` for quantised weights."""
    if name == "auto":
        return "bf16" if cpu & BF16_FEATURES else "f32"
    if name in OTHER_PRECISIONS:
        raise UnsupportedOption(
            f"precision={name!r}: runner='hf-generate' computes in f32 or bf16 only", param="precision"
        )
    if name not in DTYPES:
        raise ConfigError(f"precision={name!r} is none of auto, {', '.join(DTYPES)}", param="precision")
    return name


def load(folder: Path, precision: str) -> LoadedModel:
    """Read the folder's weights.  :class:`UnsupportedModel` says why a sound model can't be served this way."""
    config = _read_config(folder)
    _check_kind(config)
    model = _read_model(folder, DTYPES[precision])
    if hasattr(model.config, "original_max_position_embeddings"):
        # Phi-3 drops its cache where the rectangle grows to this, for frequencies that our rows never reach.
        model.config.original_max_position_embeddings = sys.maxsize
    model.generation_config = GenerationConfig()  # the folder's own defaults are shown, never silently applied
    alone = _probe(model, [PROBE])
    _check_padding(config.model_type, alone, _probe(model, [PROBE, PROBE * 2]), PADDING_TOLERANCE[precision])
    return LoadedModel(model, alone.logits[0].shape[-1], _max_positions(config), _token_bytes(alone))


def plain_config(max_new_tokens: int, **more: bool) -> GenerationConfig:
    """Greedy, with a cache, and no end-of-text token: who ends, the policy decides."""
    return GenerationConfig(do_sample=False, use_cache=True, max_new_tokens=max_new_tokens, **more)


def _read_model(folder: Path, dtype: torch.dtype) -> Any:
    disable_progress_bar()  # a server's log is no terminal
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=dtype,
            output_loading_info=True,
        )
    except ValueError as error:  # of a kind that has no causal model, or that wants code of its own
        raise UnsupportedModel(f"transformers has no causal model for {folder}: {_first_line(error)}") from error
    except Exception as error:  # each file format has errors of its own
        raise ModelError(f"transformers can't load {folder}: {_first_line(error)}") from error
    if info["missing_keys"]:  # transformers would go on with random numbers
        names = sorted(info["missing_keys"])
        raise ModelError(f"{folder} lacks {len(names)} of the model's weights, {names[0]} among them")
    return model.eval()


def _read_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except ValueError as error:
        raise UnsupportedModel(f"transformers doesn't know the model in {folder}: {_first_line(error)}") from error
    except OSError as error:
        raise ModelError(f"transformers can't read {folder}: {_first_line(error)}") from error


def _check_kind(config: Any) -> None:
    kind = config.model_type
    if config.is_encoder_decoder:
        raise UnsupportedModel(f"{kind} is an encoder-decoder model; runner='hf-generate' serves decoder-only ones")
    if kind in MASK_TABLES:
        raise UnsupportedModel(
            f"{kind} keeps its causal mask as a table of the context's width; a round's longest prompt and longest "
            "output together may be wider"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedModel(
            f"this {kind} model's weights are stored quantised; runner='hf-generate' reads plain ones"
        )


def _max_positions(config: Any) -> int | None:
    """Positions that the model was made for and turns by the same rotary frequencies whoever shares the batch.

    ``longrope`` has other frequencies for passes with a longer text in them.
    """
    text = config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None) or {}
    layers = [rope, *(value for value in rope.values() if isinstance(value, dict))]  # one for all, or one for each kind
    limits = [
        getattr(text, "max_position_embeddings", None),
        *(layer.get("original_max_position_embeddings") for layer in layers if layer.get("rope_type") == "longrope"),
    ]
    return min((int(limit) for limit in limits if limit is not None), default=None)


def _probe(model: Any, prompts: list[list[int]]) -> Any:
    """What ``generate()`` itself gives after the prompts: logits, and the cache that one pass leaves."""
    rectangle = left_padded(prompts)
    return model.generate(
        rectangle.input_ids,
        attention_mask=rectangle.attention_mask,
        generation_config=plain_config(1, return_dict_in_generate=True, output_logits=True),
    )


def _check_padding(kind: str, alone: Any, padded: Any, tolerance: float) -> None:
    """A padded row must give the logits of the row alone: positions must follow the attention mask."""
    expected, given = alone.logits[0][0], padded.logits[0][0]  # [vocab] each
    if not torch.allclose(given, expected, rtol=0.0, atol=tolerance * float(expected.abs().max())):
        raise UnsupportedModel(
            f"{kind}: transformers gives a left-padded row other logits than the row alone, "
            "so runner='hf-generate' can't batch it"
        )


def _token_bytes(alone: Any) -> int:
    """Bytes of keys and values a token, as one pass over the probe really leaves them."""
    cache = alone.cache if hasattr(alone, "cache") else alone.past_key_values  # transformers' releases differ
    tensors = [
        tensor
        for layer in getattr(cache, "layers", ())
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
        if tensor is not None
    ]
    return sum(int(tensor.nbytes) for tensor in tensors) // len(PROBE)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
