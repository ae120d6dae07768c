"""Every family's config tells its outline; what is no causal model of text is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint.made_gguf import Recipe, write_model
from everystep.checkpoint import open_checkpoint
from everystep.checkpoint.fields import Fields
from everystep.checkpoint.hf_outline import read_outline
from everystep.errors import ModelError, UnsupportedModel

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama"

# The keys that the hub's config.json files of these models have: type, class, vocabulary, context key and length.
FAMILIES = [
    ("gpt_neox", "GPTNeoXForCausalLM", 50432, "max_position_embeddings", 2048),
    ("phi3", "Phi3ForCausalLM", 32064, "max_position_embeddings", 4096),
    ("gemma", "GemmaForCausalLM", 256000, "max_position_embeddings", 8192),
    ("gemma2", "Gemma2ForCausalLM", 256000, "max_position_embeddings", 8192),
    ("gemma3_text", "Gemma3ForCausalLM", 262144, "max_position_embeddings", 32768),
    ("gpt2", "GPT2LMHeadModel", 50257, "n_positions", 1024),
    ("gptj", "GPTJForCausalLM", 50400, "n_positions", 2048),
    ("gpt_bigcode", "GPTBigCodeForCausalLM", 49152, "n_positions", 8192),
    ("opt", "OPTForCausalLM", 50272, "max_position_embeddings", 2048),
    ("bloom", "BloomForCausalLM", 250880, "seq_length", 2048),
    ("mpt", "MPTForCausalLM", 50432, "max_seq_len", 2048),
    ("falcon", "FalconForCausalLM", 65024, "max_position_embeddings", 2048),
    ("mixtral", "MixtralForCausalLM", 32000, "max_position_embeddings", 32768),
]


def config(**values: Any) -> Fields:
    whole = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 9, "n_positions": 7, **values}
    return Fields({key: value for key, value in whole.items() if value is not ...}, "config.json")


@pytest.mark.parametrize(("model_type", "name", "vocab_size", "key", "length"), FAMILIES)
def test_a_family_s_context_is_found_where_it_writes_it(
    model_type: str, name: str, vocab_size: int, key: str, length: int
) -> None:
    values = {"n_positions": ..., "model_type": model_type, "architectures": [name], "vocab_size": vocab_size}
    outline = read_outline(config(**values | {key: length}))
    assert (outline.model_type, outline.vocab_size, outline.max_context_len) == (model_type, vocab_size, length)


def test_a_context_key_of_null_says_nothing() -> None:
    assert read_outline(config(max_position_embeddings=None, n_positions=64)).max_context_len == 64


def test_a_config_without_a_class_is_taken_for_a_causal_model() -> None:
    assert read_outline(config(architectures=...)).vocab_size == 9


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            "T5ForConditionalGeneration is an encoder and a decoder",
        ),
        (
            {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}},
            "Gemma3ForConditionalGeneration reads more than text",
        ),
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM is no causal language model"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "is no causal language model"),
        (
            {"architectures": ["MambaForCausalLM"], "n_positions": ...},
            "MambaForCausalLM says nothing of its context's length .*a state instead of a KV cache",
        ),
    ],
)
def test_what_isn_t_a_causal_model_of_text_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=words) as caught:
        read_outline(config(**values))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "values", [{"model_type": ...}, {"vocab_size": ...}, {"vocab_size": 0}, {"n_positions": "8"}, {"architectures": 3}]
)
def test_what_is_missing_or_malformed_is_the_file_s_fault(values: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        read_outline(config(**values))
    assert not isinstance(caught.value, UnsupportedModel)


def test_a_family_without_a_graph_of_ours_opens_and_says_so_when_asked(tmp_path: Path) -> None:
    folder = shutil.copytree(TINY, tmp_path / "model")
    whole = json.loads((folder / "config.json").read_text()) | {"model_type": "gpt_neox"}
    (folder / "config.json").write_text(json.dumps(whole | {"architectures": ["GPTNeoXForCausalLM"]}))
    checkpoint = open_checkpoint(str(folder), tmp_path)
    assert checkpoint.outline.model_type == "gpt_neox"
    assert checkpoint.tokenizer.tokenizer_json
    for attribute in ("architecture", "weights"):
        with pytest.raises(UnsupportedModel, match="is of model_type 'gpt_neox'; supported are llama"):
            getattr(checkpoint, attribute)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(arch="gemma"), "is of architecture 'gemma'; supported are llama, qwen2, qwen3"),
        (Recipe(metadata={"expert_count": 8}), "is a mixture of experts"),
        (Recipe(metadata={"rope.scaling.type": "yarn"}), "scales its rotary embedding by 'yarn'"),
        (Recipe(extra={"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}), "has tensor 'blk.0.attn_sinks.weight'"),
    ],
)
def test_a_sound_gguf_file_that_we_don_t_compute_is_unsupported_and_no_fault(
    recipe: Recipe, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=words):
        open_checkpoint(str(write_model(tmp_path / "m.gguf", recipe).path), tmp_path)
