"""A GGUF file as a checkpoint: its metadata as hyperparameters, its tensors as weights.

Owns the meaning of the metadata's keys, and the refusal of what would be computed wrongly.  Ignorant of the container's
bytes and of quantisation.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everystep.architecture import Architecture, Checkpoint, Family, Outline, RopeScaling
from everystep.checkpoint.digest import remembered_sha256
from everystep.checkpoint.expected import check_shapes, expected_shapes
from everystep.checkpoint.fields import Fields, shown
from everystep.checkpoint.gguf_file import read_gguf
from everystep.checkpoint.gguf_tokenizer import read_tokenizer
from everystep.checkpoint.gguf_weights import ROPE_FACTORS, GgufWeights
from everystep.errors import ModelError, UnsupportedModel

# Mistral is "llama" to ggml's converter.
FAMILIES: dict[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
INTERLEAVED_ARCHITECTURE = "llama"
EMBEDDING = "model.embed_tokens.weight"
# What Llama 3.1 and later were trained with; the file holds only the factors that result.
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_ORIGINAL_POSITIONS = 1.0, 4.0, 8192


def open_gguf(path: Path, name: str, cache_dir: Path) -> Checkpoint:
    """Open a GGUF file of the llama family.  Raises :class:`ModelError` for what isn't supported, by name."""
    file = read_gguf(path, with_vocabulary=False)
    weights = GgufWeights(file)
    metadata = Fields(file.metadata, str(path))
    architecture = _architecture(metadata, weights)
    check_shapes(architecture, weights.shapes(), str(path))
    weights.refuse_unknown(expected_shapes(architecture))
    if metadata.raw("general.architecture") == INTERLEAVED_ARCHITECTURE:
        weights.interleave(architecture)
    return Checkpoint(
        name=name,
        path=str(path),
        content_key=remembered_sha256(path, cache_dir),
        outline=Outline(
            model_type=architecture.family,
            vocab_size=architecture.vocab_size,
            max_context_len=architecture.max_context_len,
        ),
        read_architecture=lambda: architecture,
        read_weights=lambda: weights,
        read_tokenizer=lambda: read_tokenizer(Fields(read_gguf(path).metadata, str(path))),
    )


def _architecture(metadata: Fields, weights: GgufWeights) -> Architecture:
    arch = metadata.text("general.architecture")
    if arch not in FAMILIES:
        raise UnsupportedModel(
            f"{metadata.source} is of architecture {shown(arch)}; supported are {', '.join(FAMILIES)}"
        )
    if metadata.count(f"{arch}.expert_count", 0, at_least=0):
        raise UnsupportedModel(f"{metadata.source} is a mixture of experts, which isn't supported")
    if EMBEDDING not in weights:
        raise ModelError(f"{metadata.source} has no tensor 'token_embd.weight'")
    heads = metadata.count(f"{arch}.attention.head_count")
    head_dim = _head_dim(metadata, arch, heads)
    context_len = metadata.count(f"{arch}.context_length")
    theta = metadata.positive(f"{arch}.rope.freq_base", 10000.0)
    window = metadata.count(f"{arch}.attention.sliding_window", 0, at_least=0)
    return Architecture(
        family=FAMILIES[arch],
        num_layers=metadata.count(f"{arch}.block_count"),
        hidden_size=metadata.count(f"{arch}.embedding_length"),
        num_heads=heads,
        num_kv_heads=_kv_heads(metadata, arch, heads),
        head_dim=head_dim,
        intermediate_size=metadata.count(f"{arch}.feed_forward_length"),
        vocab_size=weights.shapes()[EMBEDDING][0],
        max_context_len=context_len,
        norm_eps=metadata.number(f"{arch}.attention.layer_norm_rms_epsilon", at_least=0),
        rope_theta=theta,
        rope_scaling=_rope_scaling(metadata, arch, weights, theta, head_dim),
        sliding_window=window if 0 < window < context_len else None,
        has_attention_bias="model.layers.0.self_attn.q_proj.bias" in weights,
        is_head_tied="lm_head.weight" not in weights,
    )


def _kv_heads(metadata: Fields, arch: str, heads: int) -> int:
    kv_heads = metadata.count(f"{arch}.attention.head_count_kv", heads)
    if heads % kv_heads:
        raise UnsupportedModel(f"{metadata.source}: {heads} heads can't share {kv_heads} key-value heads evenly")
    return kv_heads


def _head_dim(metadata: Fields, arch: str, heads: int) -> int:
    head_dim = metadata.count(
        f"{arch}.attention.key_length", metadata.count(f"{arch}.embedding_length") // heads or None
    )
    for key in ("attention.value_length", "rope.dimension_count"):
        if metadata.count(f"{arch}.{key}", head_dim) != head_dim:
            raise metadata.bad(f"{arch}.{key}", f"the head's size {head_dim}, which alone is supported")
    if head_dim % 2:
        raise UnsupportedModel(f"{metadata.source}: a head of {head_dim} numbers can't be rotated by halves")
    return head_dim


def _rope_scaling(metadata: Fields, arch: str, weights: GgufWeights, theta: float, head_dim: int) -> RopeScaling | None:
    kind = metadata.text(f"{arch}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedModel(f"{metadata.source} scales its rotary embedding by {shown(kind)}; supported is 'linear'")
    if ROPE_FACTORS in weights:
        return _llama3_scaling(weights.load(ROPE_FACTORS), theta, head_dim, metadata.source)
    if kind == "none":
        return None
    return RopeScaling(kind="linear", factor=metadata.positive(f"{arch}.rope.scaling.factor"))


def _llama3_scaling(factors: npt.NDArray[np.float32], theta: float, head_dim: int, source: str) -> RopeScaling:
    """The scaling that gives the stored divisors of the frequencies, ``[head_dim / 2]``.

    The lowest frequency is divided by the whole factor, so the factor can be read off; the other constants are the
    same in all of this family's models, and the divisors that they give must be the stored ones.
    """
    factor = float(factors.max(initial=1.0))
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    turns = LLAMA3_ORIGINAL_POSITIONS / wavelengths
    kept = np.clip((turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW), 0, 1)
    expected = 1 / ((1 - kept) / factor + kept)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise UnsupportedModel(
            f"{source} has rotary factors ({ROPE_FACTORS}) that aren't Llama 3's, which isn't supported"
        )
    return RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=LLAMA3_LOW,
        high_freq_factor=LLAMA3_HIGH,
        original_max_position=LLAMA3_ORIGINAL_POSITIONS,
    )
