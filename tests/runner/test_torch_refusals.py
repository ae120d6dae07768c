"""Models that the torch runner can't compute are refused by name with the reason, before they serve."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from everystep.errors import ConfigError, ModelError, UnsupportedModel, UnsupportedOption

pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {"vocab_size": 384, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA: dict[str, Any] = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 128}
GPT: dict[str, Any] = {"vocab_size": 384, "n_layer": 2, "n_head": 4}
T5: dict[str, Any] = {"vocab_size": 384, "d_model": 64, "num_layers": 1, "num_heads": 4, "d_kv": 16}
BART: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
MPT: dict[str, Any] = {"vocab_size": 384, "d_model": 64, "n_layers": 2, "n_heads": 4}
EXPERTS: dict[str, Any] = {"head_dim": 16, "num_local_experts": 4}


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    import transformers

    return transformers


def load(folder: Path, **options: Any) -> Any:
    from everystep.runner.torch_paged import TorchRunner

    return TorchRunner(folder, **{"precision": "f32", "device": "cpu", "num_threads": 1, **options})


# What computes the model, what its config says, what the refusal must say.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "t5": ("T5ForConditionalGeneration", T5, "encoder-decoder"),
    "bart": ("BartForConditionalGeneration", {"vocab_size": 384, "d_model": 64, **BART}, "encoder-decoder"),
    "mamba": ("MambaForCausalLM", {**SMALL, "state_size": 8}, "state beside the KV cache"),
    "bloom": ("BloomForCausalLM", {**GPT, "hidden_size": 64}, "attention interface"),
    "mpt": ("MptForCausalLM", MPT, "attention interface"),
    "gpt_oss": ("GptOssForCausalLM", {**LLAMA, **EXPERTS}, r"attention sinks \(s_aux\)"),
    "llama4_text": ("Llama4ForCausalLM", {**LLAMA, **EXPERTS, "intermediate_size_mlp": 64}, "chunked_attention"),
    "lfm2": ("Lfm2ForCausalLM", {**LLAMA, "layer_types": ["conv", "full_attention"]}, "layers of the type conv"),
    "bert": ("BertLMHeadModel", {**SMALL, "intermediate_size": 64}, "looks forward"),
    "nemotron": ("NemotronForCausalLM", LLAMA, "hand the arguments"),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_model_that_needs_what_our_attention_lacks_is_refused_by_name(
    transformers: ModuleType, model_type: str, tmp_path: Path
) -> None:
    name, options, reason = REFUSED[model_type]
    model_class = getattr(transformers, name)
    model_class(model_class.config_class(**options)).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match=reason) as refusal:
        load(tmp_path)
    assert f"can't run {model_type} models" in refusal.value.message


def save_llama(transformers: ModuleType, folder: Path, **options: Any) -> Any:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **options))
    model.save_pretrained(folder)
    return model


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_of_pickled_weights_is_refused(transformers: ModuleType, tmp_path: Path) -> None:
    import torch

    model = save_llama(transformers, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="no safetensors file"):
        load(tmp_path)


def test_a_folder_that_lacks_a_weight_is_refused_instead_of_filled_with_random_numbers(
    transformers: ModuleType, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    save_llama(transformers, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of the model's weights, model\.layers\.1\.mlp\.up_proj\.weight"):
        load(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load(tmp_path)


def test_a_model_whose_code_lies_in_its_folder_is_refused_and_not_run(transformers: ModuleType, tmp_path: Path) -> None:
    save_llama(transformers, tmp_path)
    edit_config(tmp_path, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UnsupportedModel, match="transformers can't read"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "stored quantised"),
        ({"vision_config": {"hidden_size": 8}}, "multimodal"),
    ],
)
def test_a_config_that_says_more_than_a_text_model_in_floats_is_refused(
    transformers: ModuleType, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    save_llama(transformers, tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(UnsupportedModel, match=reason):
        load(tmp_path)


def test_a_window_that_the_mask_has_and_the_attention_call_does_not_is_refused(
    transformers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short trial can't meet a window of thousands of tokens: what the layer would see far out is compared."""
    config = transformers.MistralConfig(**LLAMA, sliding_window=100)
    transformers.MistralForCausalLM(config).save_pretrained(tmp_path)
    load(tmp_path)
    from transformers.models.mistral import modeling_mistral

    create = modeling_mistral.create_sliding_window_causal_mask
    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", modeling_mistral.create_causal_mask)
    with pytest.raises(UnsupportedModel, match="mask isn't the causal one over the last 100 tokens"):
        load(tmp_path)
    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", create)


def test_a_model_that_mixes_rows_beside_its_attention_fails_the_trial(
    transformers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a convolution over the packed tokens."""
    from transformers.models.llama import modeling_llama

    save_llama(transformers, tmp_path)
    plain = modeling_llama.LlamaMLP.forward
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", lambda self, x: plain(self, x + x.roll(1, dims=1)))
    with pytest.raises(UnsupportedModel, match="differ from its own by"):
        load(tmp_path)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_quantised_precision_is_refused_with_what_there_is(precision: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOption, match="the torch runner computes in f32 or bf16"):
        load(tmp_path, precision=precision)


def test_a_gpu_that_is_not_there_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="finds no CUDA device") as refusal:
        load(tmp_path, device="cuda")
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize(
    ("features", "precision"), [({"avx2"}, "f32"), ({"avx2", "avx512_bf16"}, "bf16"), ({"amx_bf16"}, "bf16")]
)
def test_auto_takes_bf16_where_the_cpu_has_it(features: set[str], precision: str) -> None:
    from everystep.runner.torch_paged.placement import resolve_placement

    assert resolve_placement("cpu", "auto", cpu=features).precision == precision
