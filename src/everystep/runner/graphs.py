"""One graph a family, from the parts.

Owns what distinguishes Llama, Mistral, Qwen2, Qwen3, OPT and GPT-2.  Ignorant of precision and of running.
"""

from __future__ import annotations

import openvino as ov
from openvino import opset15 as ops

from everystep.architecture import Architecture
from everystep.runner.built_weights import HEAD, BuiltWeights
from everystep.runner.graph_parts import GraphParts, Node

POSITION_OFFSET = 2  # OPT's table of positions begins with two rows that no token uses


def build_graph(architecture: Architecture, weights: BuiltWeights) -> ov.Model:
    """The paged graph of a model, all dimensions dynamic."""
    parts = GraphParts(architecture, weights)
    if architecture.family == "opt":
        return _opt(parts)
    if architecture.family == "gpt2":
        return _gpt2(parts)
    return _llama(parts)


def _llama(parts: GraphParts) -> ov.Model:
    x = parts.embedding("model.embed_tokens.weight", parts.input_ids)
    rotary = parts.rotary()
    for layer in range(parts.architecture.num_layers):
        prefix = f"model.layers.{layer}."
        h = parts.rms_norm(x, f"{prefix}input_layernorm.weight")
        x = ops.add(x, _llama_attention(parts, layer, f"{prefix}self_attn.", h, rotary))
        h = parts.rms_norm(x, f"{prefix}post_attention_layernorm.weight")
        gate = _activate(parts, parts.linear(h, f"{prefix}mlp.gate_proj.weight"))
        up = parts.linear(h, f"{prefix}mlp.up_proj.weight")
        x = ops.add(x, parts.linear(ops.multiply(gate, up), f"{prefix}mlp.down_proj.weight"))
    return parts.model(parts.rms_norm(parts.sampled(x), "model.norm.weight"), HEAD)


def _llama_attention(parts: GraphParts, layer: int, prefix: str, h: Node, rotary: tuple[Node, Node]) -> Node:
    a = parts.architecture
    q, k, v = (
        parts.linear(h, f"{prefix}{n}_proj.weight", f"{prefix}{n}_proj.bias" if a.has_attention_bias else None)
        for n in "qkv"
    )
    if a.family == "qwen3":
        q = _head_norm(parts, q, a.num_heads, f"{prefix}q_norm.weight")
        k = _head_norm(parts, k, a.num_kv_heads, f"{prefix}k_norm.weight")
    q, k = parts.rotate(q, a.num_heads, rotary), parts.rotate(k, a.num_kv_heads, rotary)
    out = parts.attention(layer, q, k, v)
    bias = f"{prefix}o_proj.bias"
    return parts.linear(out, f"{prefix}o_proj.weight", bias if parts.has(bias) else None)


def _head_norm(parts: GraphParts, x: Node, num_heads: int, name: str) -> Node:
    """Each head's own norm: ``[T, heads * head_dim]`` both ways."""
    dim = parts.architecture.head_dim
    heads = ops.reshape(x, parts.int64(-1, num_heads, dim), False)
    return ops.reshape(parts.rms_norm(heads, name), parts.int64(-1, num_heads * dim), False)


def _opt(parts: GraphParts) -> ov.Model:
    top = "model.decoder."
    positions = parts.embedding(f"{top}embed_positions.weight", parts.position_ids, first_row=POSITION_OFFSET)
    x = ops.add(parts.embedding(f"{top}embed_tokens.weight", parts.input_ids), positions)
    for layer in range(parts.architecture.num_layers):
        prefix = f"{top}layers.{layer}."
        h = parts.layer_norm(x, f"{prefix}self_attn_layer_norm")
        q, k, v = (_biased(parts, h, f"{prefix}self_attn.{n}_proj") for n in "qkv")
        x = ops.add(x, _biased(parts, parts.attention(layer, q, k, v), f"{prefix}self_attn.out_proj"))
        h = _activate(parts, _biased(parts, parts.layer_norm(x, f"{prefix}final_layer_norm"), f"{prefix}fc1"))
        x = ops.add(x, _biased(parts, h, f"{prefix}fc2"))
    return parts.model(parts.layer_norm(parts.sampled(x), f"{top}final_layer_norm"), HEAD)


def _gpt2(parts: GraphParts) -> ov.Model:
    top, hidden = "transformer.", parts.architecture.hidden_size
    x = parts.embedding(f"{top}wte.weight", parts.input_ids)
    x = ops.add(x, parts.embedding(f"{top}wpe.weight", parts.position_ids))
    for layer in range(parts.architecture.num_layers):
        prefix = f"{top}h.{layer}."
        fused = _biased(parts, parts.layer_norm(x, f"{prefix}ln_1"), f"{prefix}attn.c_attn")
        thirds = ops.variadic_split(fused, parts.int64(1), parts.int64(hidden, hidden, hidden))
        out = parts.attention(layer, *(thirds.output(i) for i in range(3)))
        x = ops.add(x, _biased(parts, out, f"{prefix}attn.c_proj"))
        h = _activate(parts, _biased(parts, parts.layer_norm(x, f"{prefix}ln_2"), f"{prefix}mlp.c_fc"))
        x = ops.add(x, _biased(parts, h, f"{prefix}mlp.c_proj"))
    return parts.model(parts.layer_norm(parts.sampled(x), f"{top}ln_f"), HEAD)


def _biased(parts: GraphParts, x: Node, name: str) -> Node:
    return parts.linear(x, f"{name}.weight", f"{name}.bias")


def _activate(parts: GraphParts, x: Node) -> Node:
    match parts.architecture.activation:
        case "silu":
            return ops.swish(x)
        case "relu":
            return ops.relu(x)
        case "gelu":
            return ops.gelu(x, "erf")
        case "gelu_tanh":
            return ops.gelu(x, "tanh")
