"""A config.json as an architecture.

Owns the reading of each family's keys, old and new, with transformers' defaults for those left out, and the refusal of
what would be computed wrongly.  Ignorant of weights and tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from everystep.architecture import Architecture, Family, RopeScaling
from everystep.checkpoint.fields import Fields, shown
from everystep.errors import UnsupportedModel

Activation = Literal["silu", "relu", "gelu", "gelu_tanh"]
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
DEFAULT_WINDOW = 4096
DEFAULT_FIRST_WINDOWED_LAYER = 28  # Qwen's max_window_layers


def read_architecture(config: Fields) -> Architecture:
    """Raises :class:`UnsupportedModel` that names the family, activation, scaling or value without a graph of ours."""
    family = config.text("model_type")
    if family not in READERS:
        raise UnsupportedModel(f"{config.source} is of model_type {shown(family)}; supported are {', '.join(READERS)}")
    if config.raw("quantization_config") is not None:
        method = config.object("quantization_config").raw("quant_method")
        raise UnsupportedModel(f"{config.source}: weights quantised by {shown(method)} aren't supported in a folder")
    return READERS[family](config)


def _llama_like(family: Family) -> Callable[[Fields], Architecture]:
    def read(config: Fields) -> Architecture:
        _only(config, mlp_bias=False)
        heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
        context_len = config.count("max_position_embeddings")
        theta, scaling = _rope(config, context_len)
        window = WINDOW_READERS[family](config)
        return Architecture(
            family=family,
            num_layers=config.count("num_hidden_layers"),
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=_kv_heads(config, heads),
            head_dim=_head_dim(config, family, hidden, heads),
            intermediate_size=config.count("intermediate_size"),
            vocab_size=config.count("vocab_size"),
            max_context_len=context_len,
            norm_eps=config.number("rms_norm_eps", 1e-6, at_least=0),
            rope_theta=theta,
            rope_scaling=scaling,
            sliding_window=window if window is not None and window < context_len else None,
            activation=_activation(config, "hidden_act", "silu"),
            has_attention_bias=_has_attention_bias(config, family),
            is_head_tied=config.flag("tie_word_embeddings", False),
        )

    return read


def _opt(config: Fields) -> Architecture:
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    _only(config, enable_bias=True, layer_norm_elementwise_affine=True, do_layer_norm_before=True)
    _only(config, word_embed_proj_dim=hidden, _remove_final_layer_norm=False)
    return Architecture(
        family="opt",
        num_layers=config.count("num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=_even_share(config, hidden, heads),
        intermediate_size=config.count("ffn_dim"),
        vocab_size=config.count("vocab_size"),
        max_context_len=config.count("max_position_embeddings"),
        norm_eps=1e-5,  # this family can't set it
        activation=_activation(config, "activation_function", "relu"),
        has_attention_bias=True,
        is_head_tied=config.flag("tie_word_embeddings", True),
    )


def _gpt2(config: Fields) -> Architecture:
    heads, hidden = config.count("n_head"), config.count("n_embd")
    _only(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    return Architecture(
        family="gpt2",
        num_layers=config.count("n_layer"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=_even_share(config, hidden, heads),
        intermediate_size=config.count("n_inner", 4 * hidden),
        vocab_size=config.count("vocab_size"),
        max_context_len=config.count("n_positions"),
        norm_eps=config.number("layer_norm_epsilon", 1e-5, at_least=0),
        activation=_activation(config, "activation_function", "gelu_new"),
        has_attention_bias=True,
        is_head_tied=config.flag("tie_word_embeddings", True),
    )


READERS: dict[str, Callable[[Fields], Architecture]] = {
    "llama": _llama_like("llama"),
    "mistral": _llama_like("mistral"),
    "qwen2": _llama_like("qwen2"),
    "qwen3": _llama_like("qwen3"),
    "opt": _opt,
    "gpt2": _gpt2,
}


def _only(config: Fields, **supported: Any) -> None:
    """Refuse a key with another value than the one that is computed here."""
    for key, value in supported.items():
        found = config.raw(key)
        if found is not None and found != value:
            raise UnsupportedModel(f"{config.source} has {key}={shown(found)}; only {value!r} is supported")


def _activation(config: Fields, key: str, default: str) -> Activation:
    name = config.text(key, default)
    if name not in ACTIVATIONS:
        raise UnsupportedModel(f"{config.source} has {key} {shown(name)}; supported are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _kv_heads(config: Fields, heads: int) -> int:
    kv_heads = config.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise UnsupportedModel(f"{config.source}: {heads} heads can't share {kv_heads} key-value heads evenly")
    return kv_heads


def _head_dim(config: Fields, family: Family, hidden: int, heads: int) -> int:
    if config.raw("head_dim") is not None:
        return config.count("head_dim")
    return 128 if family == "qwen3" else _even_share(config, hidden, heads)


def _even_share(config: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise UnsupportedModel(f"{config.source}: hidden size {hidden} isn't a multiple of {heads} heads")
    return hidden // heads


def _has_attention_bias(config: Fields, family: Family) -> bool:
    """Qwen2 has biases and no key for them, Mistral has neither."""
    return family == "qwen2" or (family != "mistral" and config.flag("attention_bias", False))


def _mistral_window(config: Fields) -> int | None:
    """A key left out means the default, ``null`` means no window.  A token sees itself and ``window - 1`` before it."""
    return None if _is_null(config, "sliding_window") else config.count("sliding_window", DEFAULT_WINDOW)


def _qwen_window(config: Fields) -> int | None:
    """The window, if every layer has it: Qwen names one that it mostly doesn't use."""
    if not config.flag("use_sliding_window", False) or _is_null(config, "sliding_window"):
        return None
    num_layers = config.count("num_hidden_layers")
    kinds = config.raw("layer_types")
    if isinstance(kinds, list):
        num_windowed = sum(kind == "sliding_attention" for kind in kinds)
    else:
        first = config.count("max_window_layers", DEFAULT_FIRST_WINDOWED_LAYER, at_least=0)
        num_windowed = max(0, num_layers - first)
    if 0 < num_windowed < num_layers:
        raise UnsupportedModel(
            f"{config.source}: {num_windowed} of {num_layers} layers have a sliding window; supported are all or none"
        )
    return config.count("sliding_window", DEFAULT_WINDOW) if num_windowed else None


WINDOW_READERS: dict[Family, Callable[[Fields], int | None]] = {
    "llama": lambda _: None,
    "mistral": _mistral_window,
    "qwen2": _qwen_window,
    "qwen3": _qwen_window,
}


def _is_null(config: Fields, key: str) -> bool:
    return config.has(key) and config.raw(key) is None


def _rope(config: Fields, context_len: int) -> tuple[float, RopeScaling | None]:
    """Base and scaling: ``rope_parameters`` of transformers 5, or ``rope_theta`` and ``rope_scaling`` before it."""
    rope = config.object("rope_parameters" if config.raw("rope_parameters") is not None else "rope_scaling")
    _only(config, partial_rotary_factor=1.0)
    _only(rope, partial_rotary_factor=1.0)
    theta = rope.positive("rope_theta", config.positive("rope_theta", 10000.0))
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling(kind="linear", factor=rope.positive("factor"))
    if kind == "llama3":
        if rope.positive("high_freq_factor") <= rope.positive("low_freq_factor"):
            raise rope.bad("high_freq_factor", "above low_freq_factor")
        return theta, RopeScaling(
            kind="llama3",
            factor=rope.positive("factor"),
            low_freq_factor=rope.positive("low_freq_factor"),
            high_freq_factor=rope.positive("high_freq_factor"),
            original_max_position=rope.count("original_max_position_embeddings", context_len),
        )
    raise UnsupportedModel(
        f"{config.source} scales its rotary embedding by {shown(kind)}; supported are 'linear' and 'llama3'"
    )
