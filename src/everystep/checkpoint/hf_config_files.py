"""A model's hyperparameters and tokenizer as the JSON files of a Hugging Face folder.

Owns their keys, in the form of transformers 5, for the families that GGUF files have.  The way back is
:mod:`everystep.checkpoint.hf_config` and :mod:`everystep.checkpoint.hf_tokenizer`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from everystep.architecture import Architecture, RopeScaling, TokenizerData
from everystep.errors import UnsupportedModel

Json = dict[str, Any]
CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def config_json(architecture: Architecture, tokenizer: TokenizerData) -> Json:
    """Raises :class:`UnsupportedModel` for a mixture of parts that no class of transformers has."""
    a, family = architecture, _family(architecture)
    return {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "dtype": "float32",
        "hidden_size": a.hidden_size,
        "intermediate_size": a.intermediate_size,
        "num_hidden_layers": a.num_layers,
        "num_attention_heads": a.num_heads,
        "num_key_value_heads": a.num_kv_heads,
        "head_dim": a.head_dim,
        "hidden_act": a.activation,
        "rms_norm_eps": a.norm_eps,
        "max_position_embeddings": a.max_context_len,
        "rope_parameters": _rope_parameters(a),
        "attention_bias": a.has_attention_bias,
        "tie_word_embeddings": a.is_head_tied,
        "vocab_size": a.vocab_size,
        **_window(a, family),
        **generation_config_json(tokenizer),
    }


def generation_config_json(tokenizer: TokenizerData) -> Json:
    """The ids that begin and end a text; nothing of sampling, of which a GGUF file says nothing."""
    ends = list(tokenizer.eos_token_ids)
    named: Json = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": ends[0] if len(ends) == 1 else ends}
    return {key: value for key, value in named.items() if value is not None and value != []}


def tokenizer_config_json(tokenizer: TokenizerData, max_context_len: int) -> Json:
    """The flags repeat, for readers of this file alone, what the post-processor in tokenizer.json does."""
    named: Json = {
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "unk_token": tokenizer.unk_token,
        "pad_token": tokenizer.pad_token,
        "add_bos_token": tokenizer.add_bos,
        "add_eos_token": tokenizer.add_eos,
        "chat_template": tokenizer.chat_template,
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_context_len,
        "clean_up_tokenization_spaces": False,
        **{key: value for key, value in named.items() if value is not None},
    }


def _family(architecture: Architecture) -> str:
    """To ggml Mistral is a llama with a window; transformers' llama has none, and its mistral no biases."""
    if architecture.family not in CLASSES:
        raise UnsupportedModel(f"a {architecture.family} model isn't converted; supported are {', '.join(CLASSES)}")
    if architecture.family != "llama" or architecture.sliding_window is None:
        return architecture.family
    if architecture.has_attention_bias:
        raise UnsupportedModel("a llama model with a sliding window and biases has no class in transformers")
    return "mistral"


def _window(architecture: Architecture, family: str) -> Json:
    window = architecture.sliding_window
    if family == "llama":
        return {}
    if family == "mistral":
        return {"sliding_window": window}
    return {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 0}


def _rope_parameters(architecture: Architecture) -> Json:
    scaling = architecture.rope_scaling
    return {
        "rope_theta": architecture.rope_theta,
        **({"rope_type": "default"} if scaling is None else _scaled(scaling)),
    }


def _scaled(scaling: RopeScaling) -> Json:
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    values = dataclasses.asdict(scaling)
    values["original_max_position_embeddings"] = values.pop("original_max_position")
    return {"rope_type": values.pop("kind"), **values}
