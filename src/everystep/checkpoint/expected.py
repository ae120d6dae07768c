"""Which arrays a model of a given architecture must have, and of which shape.

Owns the table.  A file that disagrees is refused when it is opened, before a graph is built from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from everystep.architecture import Architecture
from everystep.errors import ModelError

Shapes = dict[str, tuple[int, ...]]


def check_shapes(architecture: Architecture, found: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raise :class:`ModelError` that names the first array that is absent or of another shape."""
    if architecture.num_layers > len(found):  # checked first: a corrupt count could ask for billions of names
        raise ModelError(f"{source} claims {architecture.num_layers} layers, but holds only {len(found)} tensors")
    for name, shape in expected_shapes(architecture).items():
        if name not in found:
            raise ModelError(f"{source} has no tensor {name!r}, which a {architecture.family} model needs")
        if found[name] != shape:
            raise ModelError(f"{source}: tensor {name!r} has shape {found[name]}, expected {shape}")


def expected_shapes(architecture: Architecture) -> Shapes:
    """Every array that the family's graph reads."""
    if architecture.family == "opt":
        return _opt(architecture)
    if architecture.family == "gpt2":
        return _gpt2(architecture)
    return _llama(architecture)


def _llama(a: Architecture) -> Shapes:
    q, kv = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    shapes: Shapes = {
        "model.embed_tokens.weight": (a.vocab_size, a.hidden_size),
        "model.norm.weight": (a.hidden_size,),
        **_head(a),
    }
    for i in range(a.num_layers):
        p = f"model.layers.{i}."
        shapes |= {
            f"{p}input_layernorm.weight": (a.hidden_size,),
            f"{p}post_attention_layernorm.weight": (a.hidden_size,),
            f"{p}self_attn.q_proj.weight": (q, a.hidden_size),
            f"{p}self_attn.k_proj.weight": (kv, a.hidden_size),
            f"{p}self_attn.v_proj.weight": (kv, a.hidden_size),
            f"{p}self_attn.o_proj.weight": (a.hidden_size, q),
            f"{p}mlp.gate_proj.weight": (a.intermediate_size, a.hidden_size),
            f"{p}mlp.up_proj.weight": (a.intermediate_size, a.hidden_size),
            f"{p}mlp.down_proj.weight": (a.hidden_size, a.intermediate_size),
        }
        if a.has_attention_bias:
            shapes |= {f"{p}self_attn.{n}_proj.bias": (q if n == "q" else kv,) for n in "qkv"}
            if a.family != "qwen2":
                shapes[f"{p}self_attn.o_proj.bias"] = (a.hidden_size,)
        if a.family == "qwen3":
            shapes |= {f"{p}self_attn.{n}_norm.weight": (a.head_dim,) for n in "qk"}
    return shapes


def _opt(a: Architecture) -> Shapes:
    h = a.hidden_size
    p = "model.decoder."
    shapes: Shapes = {
        f"{p}embed_tokens.weight": (a.vocab_size, h),
        f"{p}embed_positions.weight": (a.max_context_len + 2, h),
        **_norm(f"{p}final_layer_norm", h),
        **_head(a),
    }
    for i in range(a.num_layers):
        q = f"{p}layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"{q}self_attn.{name}", h, h)
        shapes |= _linear(f"{q}fc1", a.intermediate_size, h) | _linear(f"{q}fc2", h, a.intermediate_size)
        shapes |= _norm(f"{q}self_attn_layer_norm", h) | _norm(f"{q}final_layer_norm", h)
    return shapes


def _gpt2(a: Architecture) -> Shapes:
    h = a.hidden_size
    p = "transformer."
    shapes: Shapes = {
        f"{p}wte.weight": (a.vocab_size, h),
        f"{p}wpe.weight": (a.max_context_len, h),
        **_norm(f"{p}ln_f", h),
        **_head(a),
    }
    for i in range(a.num_layers):
        q = f"{p}h.{i}."
        shapes |= _linear(f"{q}attn.c_attn", 3 * h, h) | _linear(f"{q}attn.c_proj", h, h)
        shapes |= _linear(f"{q}mlp.c_fc", a.intermediate_size, h) | _linear(f"{q}mlp.c_proj", h, a.intermediate_size)
        shapes |= _norm(f"{q}ln_1", h) | _norm(f"{q}ln_2", h)
    return shapes


def _head(a: Architecture) -> Shapes:
    return {} if a.is_head_tied else {"lm_head.weight": (a.vocab_size, a.hidden_size)}


def _linear(name: str, num_out: int, num_in: int) -> Shapes:
    return {f"{name}.weight": (num_out, num_in), f"{name}.bias": (num_out,)}


def _norm(name: str, size: int) -> Shapes:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}
