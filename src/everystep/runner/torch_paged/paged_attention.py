"""The attention function that transformers calls in our models' layers, in place of its own.

Owns the registration and the hand-over of a step to the layers.  Ignorant of kernels' insides and of what a layer is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from everystep.errors import UnsupportedModel
from everystep.runner.torch_paged.step_batch import AttentionKernel, LayerCache, StepBatch

PAGED = "everystep_paged"


@dataclass(frozen=True, slots=True)
class PagedStep:
    """What every layer's attention needs of a step.  Travels through the model's forward as a keyword argument."""

    batch: StepBatch
    caches: tuple[LayerCache, ...]  # by layer
    kernel: AttentionKernel


def register() -> None:
    """Make ``attn_implementation=PAGED`` known.  No mask function goes with it, so that no model makes a mask."""
    AttentionInterface.register(PAGED, paged_attention)


def paged_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, T, key dim]
    key: Tensor,  # [1, KV heads, T, key dim]
    value: Tensor,  # [1, KV heads, T, value dim]
    attention_mask: None,
    *,
    paged_step: PagedStep | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,  # looked at once, when the model is probed
) -> tuple[Tensor, None]:
    """``[1, T, heads, value dim]``, and no attention weights."""
    if paged_step is None:
        raise UnsupportedModel(f"it doesn't hand the arguments of a forward pass on to its {type(module).__name__}")
    cache = paged_step.caches[module.layer_idx]
    cache.write(key[0].transpose(0, 1), value[0].transpose(0, 1), paged_step.batch.slots)
    attended = paged_step.kernel.attend(
        query[0].transpose(0, 1),
        cache,
        paged_step.batch,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
    )
    return attended.unsqueeze(0), None


def forward_logits(model: nn.Module, step: PagedStep) -> Tensor:
    """``[S, vocab]``: what the model says behind each token that draws; its own head, scaling and capping."""
    output = model(
        input_ids=step.batch.input_ids.unsqueeze(0),
        position_ids=step.batch.position_ids.unsqueeze(0),
        use_cache=False,
        logits_to_keep=step.batch.sample_idx,
        paged_step=step,
    )
    logits: torch.Tensor = output.logits[0]
    return logits
