"""config.json: keys old and new, defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from everystep.architecture import Architecture, RopeScaling
from everystep.checkpoint.fields import Fields
from everystep.checkpoint.hf_config import read_architecture
from everystep.errors import ModelError

BASE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
}
OPT = {**BASE, "model_type": "opt", "ffn_dim": 512}
GPT2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 512, "vocab_size": 1000}


def read(**values: Any) -> Architecture:
    return read_architecture(Fields({**BASE, **values}, "config.json"))


def test_what_is_left_out_has_transformers_defaults() -> None:
    a = read(model_type="llama")
    assert (a.num_kv_heads, a.head_dim, a.norm_eps, a.rope_theta) == (8, 32, 1e-6, 10000.0)
    assert (a.activation, a.has_attention_bias, a.is_head_tied, a.sliding_window) == ("silu", False, False, None)
    assert read(model_type="qwen3").head_dim == 128
    assert read(model_type="qwen3", head_dim=64).head_dim == 64
    assert read_architecture(Fields(GPT2, "config.json")).intermediate_size == 4 * 256


@pytest.mark.parametrize(
    ("values", "window"),
    [
        ({"model_type": "llama", "sliding_window": 512}, None),  # Llama doesn't know the key
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mistral", "sliding_window": 512}, 512),
        ({"model_type": "mistral", "sliding_window": 8192}, None),  # no shorter than the context
        ({"model_type": "qwen2", "sliding_window": 512}, None),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": False, "max_window_layers": 0}, None),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 0}, 512),
        ({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": True, "max_window_layers": 4}, None),
        ({"model_type": "qwen3", "sliding_window": 512, "use_sliding_window": True}, None),  # from layer 28 on
        ({"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["sliding_attention"] * 4}, 4096),
        ({"model_type": "qwen3", "use_sliding_window": True, "layer_types": ["full_attention"] * 4}, None),
    ],
)
def test_a_window_counts_where_the_family_uses_it(values: dict[str, Any], window: int | None) -> None:
    assert read(**values).sliding_window == window


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096}
LLAMA3_SCALING = RopeScaling(
    kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=4096
)


@pytest.mark.parametrize(
    ("values", "theta", "scaling"),
    [
        ({"rope_theta": 5e5}, 5e5, None),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5, None),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, 5e5, None),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
            5e5,
            RopeScaling(kind="linear", factor=2.0),
        ),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 5e5, LLAMA3_SCALING),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}}, 5e5, LLAMA3_SCALING),
    ],
)
def test_rotary_parameters_are_read_in_the_old_and_the_new_form(
    values: dict[str, Any], theta: float, scaling: RopeScaling | None
) -> None:
    a = read(model_type="llama", **values)
    assert (a.rope_theta, a.rope_scaling) == (theta, scaling)


def test_biases_are_a_family_s_custom_or_a_key() -> None:
    assert read(model_type="qwen2").has_attention_bias
    assert read(model_type="qwen3", attention_bias=True).has_attention_bias
    assert not read(model_type="mistral", attention_bias=True).has_attention_bias


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "family": ({**BASE, "model_type": "gemma2"}, "model_type 'gemma2'"),
    "no family": (BASE, "has no model_type"),
    "quantised": ({**BASE, "model_type": "llama", "quantization_config": {"quant_method": "awq"}}, "'awq'"),
    "yarn": ({**BASE, "model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
    "scaling without factor": ({**BASE, "model_type": "llama", "rope_scaling": {"type": "linear"}}, "has no factor"),
    "partial rotation": ({**BASE, "model_type": "llama", "partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    "mlp bias": ({**BASE, "model_type": "llama", "mlp_bias": True}, "mlp_bias=True"),
    "activation": ({**BASE, "model_type": "llama", "hidden_act": "tanh"}, "hidden_act 'tanh'"),
    "uneven heads": ({**BASE, "model_type": "llama", "num_attention_heads": 7}, "256 isn't a multiple of 7"),
    "uneven sharing": ({**BASE, "model_type": "llama", "num_key_value_heads": 3}, "8 heads can't share 3"),
    "some layers slide": (
        {**BASE, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
        "2 of 4 layers",
    ),
    "a count in words": ({**BASE, "model_type": "llama", "num_hidden_layers": "four"}, "num_hidden_layers is 'four'"),
    "a count of zero": ({**BASE, "model_type": "llama", "num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "a count that is a flag": ({**BASE, "model_type": "llama", "vocab_size": True}, "vocab_size is True"),
    "a missing count": ({**BASE, "model_type": "llama", "vocab_size": None}, "has no vocab_size"),
    "opt with norms after": ({**OPT, "do_layer_norm_before": False}, "do_layer_norm_before=False"),
    "opt with a projection": ({**OPT, "word_embed_proj_dim": 128}, "word_embed_proj_dim=128"),
    "gpt2 with scaled layers": (
        {**GPT2, "scale_attn_by_inverse_layer_idx": True},
        "scale_attn_by_inverse_layer_idx=True",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_computed_wrongly_is_refused_by_name(what: str) -> None:
    values, words = REFUSED[what]
    with pytest.raises(ModelError, match=words):
        read_architecture(Fields(values, "config.json"))
