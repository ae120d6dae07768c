"""Prompts of different lengths as one rectangle, padded on the left.

Owns its tensors and how far its rows' positions can run.  Ignorant of sequences and of models.
"""

from __future__ import annotations

from collections.abc import Sequence as Sized
from dataclasses import dataclass

import torch
from torch import Tensor

PAD_ID = 0  # never looked at: the attention mask is 0 there


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Each row's prompt ends in the last column."""

    input_ids: Tensor  # [rows, longest] int64
    attention_mask: Tensor  # [rows, longest] int64, 1 where the prompt is

    @property
    def num_rows(self) -> int:
        return int(self.input_ids.shape[0])

    @property
    def width(self) -> int:
        """Tokens of the longest prompt."""
        return int(self.input_ids.shape[1])


def left_padded(prompts: Sized[Sized[int]]) -> Rectangle:
    width = max(map(len, prompts))
    input_ids = torch.full((len(prompts), width), PAD_ID, dtype=torch.int64)  # [rows, longest]
    attention_mask = torch.zeros_like(input_ids)
    for row, prompt in enumerate(prompts):
        input_ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.int64)
        attention_mask[row, width - len(prompt) :] = 1
    return Rectangle(input_ids, attention_mask)
