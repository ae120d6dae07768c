"""A plan's rows as the tensors of one forward pass, and what an attention kernel must offer.

Owns the shapes on which the CPU and the GPU path agree.  Ignorant of kernels and of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepBatch:
    """All rows packed one after another: ``T`` new tokens of ``B`` rows, of which ``S`` draw a token.

    All tensors lie on the device that computes.  ``T``, ``B`` and ``S`` may be padded (CUDA graphs): padding tokens
    write into a block that nobody owns, padding rows have a context of one token.
    """

    input_ids: Tensor  # [T] int64
    position_ids: Tensor  # [T] int64
    slots: Tensor  # [T] int64: block id x block size + offset, where each new token's key and value go
    query_begins: Tensor  # [B + 1] int32: where each row's tokens begin
    context_lens: Tensor  # [B] int32: tokens of each row in the cache once the new ones are written
    block_table: Tensor  # [B, most blocks of a row] int32, padded with 0
    sample_idx: Tensor  # [S] int64: the tokens whose logits are wanted
    max_query_len: int
    max_context_len: int


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's share of the KV cache."""

    keys: Tensor  # [blocks, block size, KV heads, head dim]
    values: Tensor  # [blocks, block size, KV heads, head dim]

    def write(self, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Put ``key`` and ``value`` ``[T, KV heads, head dim]`` where ``slots`` ``[T]`` say."""
        self.keys.view(-1, *self.keys.shape[2:]).index_copy_(0, slots, key)
        self.values.view(-1, *self.values.shape[2:]).index_copy_(0, slots, value)


class AttentionKernel(Protocol):
    """Causal attention of packed rows over their blocks.  The new tokens' keys and values are written already."""

    name: str

    def attend(
        self,
        query: Tensor,  # [T, heads, head dim]
        cache: LayerCache,
        batch: StepBatch,
        *,
        scale: float,
        window: int | None,  # a token sees itself and window - 1 before it
        softcap: float | None,  # logits become softcap * tanh(logits / softcap)
    ) -> Tensor:  # [T, heads, head dim]
        """Each new token attends to its row's context up to itself."""
