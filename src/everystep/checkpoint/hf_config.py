"""A config.json as an architecture.

Owns the reading of each family's keys, old and new, and the refusal of what would be computed wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from everystep.architecture import Architecture, RopeScaling
from everystep.errors import ModelError

Config = dict[str, Any]
Activation = Literal["silu", "relu", "gelu", "gelu_tanh"]
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def read_architecture(config: Config, source: str) -> Architecture:
    """Raises :class:`ModelError` for a family, an activation or a scaling that isn't supported, by name."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in READERS:
        raise ModelError(f"{source} is of model_type {family!r}; supported are {', '.join(READERS)}")
    try:
        return READERS[family](config, source)
    except KeyError as error:
        raise ModelError(f"{source}: config.json lacks {error}") from error
    except (TypeError, ZeroDivisionError) as error:
        raise ModelError(f"{source}: config.json is malformed: {error}") from error


def _llama(config: Config, source: str) -> Architecture:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    family = config["model_type"]
    if config.get("mlp_bias"):
        raise ModelError(f"{source} has biases in its MLP, which isn't supported")
    rope = config.get("rope_parameters") or {}
    return Architecture(
        family=family,
        num_layers=config["num_hidden_layers"],
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        max_context_len=config["max_position_embeddings"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        rope_scaling=_rope_scaling(rope or config.get("rope_scaling") or {}, source),
        sliding_window=_sliding_window(config, source),
        activation=_activation(config.get("hidden_act", "silu"), source),
        has_attention_bias=bool(config.get("attention_bias", family == "qwen2")),
        is_head_tied=bool(config.get("tie_word_embeddings", False)),
    )


def _opt(config: Config, source: str) -> Architecture:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    for key, value in {
        "word_embed_proj_dim": hidden,
        "do_layer_norm_before": True,
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False,
    }.items():
        if config.get(key, value) != value:
            raise ModelError(f"{source} has {key}={config[key]!r}; only {value!r} is supported")
    return Architecture(
        family="opt",
        num_layers=config["num_hidden_layers"],
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=config["ffn_dim"],
        vocab_size=config["vocab_size"],
        max_context_len=config["max_position_embeddings"],
        norm_eps=1e-5,
        activation=_activation(config.get("activation_function", "relu"), source),
        has_attention_bias=True,
        is_head_tied=bool(config.get("tie_word_embeddings", True)),
    )


def _gpt2(config: Config, source: str) -> Architecture:
    heads, hidden = config["n_head"], config["n_embd"]
    for key, value in {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }.items():
        if config.get(key, value) != value:
            raise ModelError(f"{source} has {key}={config[key]!r}; only {value!r} is supported")
    return Architecture(
        family="gpt2",
        num_layers=config["n_layer"],
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=config.get("n_inner") or 4 * hidden,
        vocab_size=config["vocab_size"],
        max_context_len=config["n_positions"],
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        activation=_activation(config.get("activation_function", "gelu_new"), source),
        has_attention_bias=True,
        is_head_tied=bool(config.get("tie_word_embeddings", True)),
    )


READERS: dict[str, Callable[[Config, str], Architecture]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "opt": _opt,
    "gpt2": _gpt2,
}


def _activation(name: str, source: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ModelError(f"{source} has activation {name!r}; supported are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _rope_scaling(rope: Config, source: str) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope["factor"])
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=rope["factor"],
            low_freq_factor=rope["low_freq_factor"],
            high_freq_factor=rope["high_freq_factor"],
            original_max_position=rope["original_max_position_embeddings"],
        )
    raise ModelError(f"{source} scales its rotary embedding by {kind!r}; supported are 'linear' and 'llama3'")


def _sliding_window(config: Config, source: str) -> int | None:
    """The window, if every layer has it.  Qwen names a window that it then doesn't use."""
    window = config.get("sliding_window")
    kinds = set(config.get("layer_types") or ())
    if window is None or config.get("use_sliding_window", True) is False or kinds == {"full_attention"}:
        return None
    if "full_attention" in kinds or config.get("max_window_layers", 0) > 0 and "layer_types" not in config:
        raise ModelError(f"{source} alternates windowed and full attention, which isn't supported")
    return int(window)
