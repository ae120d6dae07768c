"""What each layer's attention asks for, seen by calling the model once with an attention function that takes notes.

Owns the notes and the judgement whether our kernels compute what is asked.  Ignorant of kernels and of files.

A model's config says little for certain; its calls say all: shapes of keys and values, window, soft-cap, arguments we
don't know.  What a layer's mask would be is seen too, at the far end of the context, where a window or a chunk shows
that a short text never meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from everystep.errors import UnsupportedModel
from everystep.runner.torch_paged.layer_caches import LayerShape

PROBE = "everystep_probe"
PROBE_TOKENS = 4
MAX_FAR_POSITION = 2**17

# Arguments that change nothing: what the layer has used already, or what asks for extra outputs.
HARMLESS = frozenset({"position_ids", "position_embeddings", "hidden_states", "use_cache", "logits_to_keep"})
REASONS = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "a position bias added to the attention scores",
    "indices": "attention to chosen tokens only",
    "block_indices": "attention to chosen blocks only",
}


def probe_layers(model: PreTrainedModel, max_context_len: int) -> tuple[LayerShape, ...]:
    """Every layer's shape.  Raises :class:`UnsupportedModel` with all that our kernels don't compute."""
    far = min(max_context_len, MAX_FAR_POSITION) - 1
    notes = Notes(far)
    AttentionInterface.register(PROBE, notes.attend)
    AttentionMaskInterface.register(PROBE, partial(_far_mask, far))
    before = model.config._attn_implementation
    model.set_attn_implementation(PROBE)
    with torch.inference_mode():
        model(input_ids=torch.zeros(1, PROBE_TOKENS, dtype=torch.int64, device=model.device), use_cache=False)
    model.set_attn_implementation(before)
    return notes.judged()


class Notes:
    """What the probe saw, by layer."""

    def __init__(self, far_position: int) -> None:
        self._far = far_position
        self._layers: dict[int, LayerShape] = {}
        self._objections: list[str] = []

    def judged(self) -> tuple[LayerShape, ...]:
        if self._objections:
            raise UnsupportedModel("; ".join(dict.fromkeys(self._objections)))
        num_layers = len(self._layers)
        if num_layers == 0 or sorted(self._layers) != list(range(num_layers)):
            raise UnsupportedModel(f"transformers' attention interface was used by layers {sorted(self._layers)} only")
        return tuple(self._layers[index] for index in range(num_layers))

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:
        """In place of an attention function: zeros of the right shape."""
        layer = getattr(module, "layer_idx", None)
        if layer is None or layer in self._layers:
            self._objections.append(f"a {type(module).__name__} doesn't say which layer it is, or is called twice")
        else:
            self._layers[layer] = LayerShape(key.shape[1], key.shape[-1], value.shape[-1])
        self._objections += _argument_objections(module, others)
        self._objections += _shape_objections(query, key, value)
        self._objections += _mask_objections(attention_mask, sliding_window, self._far)
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[-1]), None


def _argument_objections(module: nn.Module, others: dict[str, Any]) -> Iterator[str]:
    dropout, is_causal = others.pop("dropout", 0.0), others.pop("is_causal", None)
    if dropout:
        yield f"its attention drops out at random ({dropout=})"
    if is_causal is False or (is_causal is None and getattr(module, "is_causal", True) is False):
        yield "its attention looks forward"
    for name, value in others.items():
        if value is not None and value is not False and name not in HARMLESS:
            yield f"its attention needs {REASONS.get(name, 'an argument that this runner does not know')} ({name})"


def _shape_objections(query: Tensor, key: Tensor, value: Tensor) -> Iterator[str]:
    num_tokens = {tensor.shape[2] for tensor in (query, key, value)}
    if num_tokens != {PROBE_TOKENS} or query.shape[1] % key.shape[1] or key.shape[1] != value.shape[1]:
        yield f"its queries, keys and values are {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"


def _far_mask(far: int, *, mask_function: Any, device: Any, **others: Any) -> Tensor:
    """``[1, 1, 2, far + 1]`` bool: what the last two positions of the context see."""
    zero = torch.zeros((), dtype=torch.int64, device=device)
    positions = torch.arange(far + 1, device=device)
    mask: Tensor = mask_function(zero, zero, positions[-2:, None], positions)
    return mask.expand(1, 1, 2, far + 1)


def _mask_objections(mask: Tensor | None, window: int | None, far: int) -> Iterator[str]:
    if mask is None:
        if window is not None:
            yield f"it has a window of {window} tokens, but makes no mask of it"
        return
    keys = torch.arange(far + 1)
    expected = keys <= keys[-2:, None]
    if window is not None:
        expected &= keys > keys[-2:, None] - window
    if mask.shape[-2:] != expected.shape or not torch.equal(mask[0, 0].cpu(), expected):
        reach = "the whole text" if window is None else f"the last {window} tokens"
        yield f"its mask isn't the causal one over {reach}: chunked, bidirectional, or of another width"
