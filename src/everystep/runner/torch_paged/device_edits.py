"""Bans, logit bias and penalties of a step, gathered on the host and applied on the device of the logits.

Owns the packing of what changes and its application in torch.  The formulas and their order are those of
:mod:`everystep.runner.sampling.edits`.  Ignorant of draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Sized
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everystep.runner.sampling.edits import needs_edits
from everystep.runner.sampling.history import Histories
from everystep.runner.torch_paged.device_copies import to_device
from everystep.types import Row, Sequence

BANNED = float("-inf")


@dataclass(frozen=True, slots=True)
class Edits:
    """Flat lists over all rows of a step; each (row, token) pair comes at most once in each of the three lists."""

    ban_rows: NDArray[np.int64]  # [bans]
    ban_tokens: NDArray[np.int64]  # [bans]
    bias_rows: NDArray[np.int64]  # [biases]
    bias_tokens: NDArray[np.int64]  # [biases]
    biases: NDArray[np.float32]  # [biases]
    seen_rows: NDArray[np.int64]  # [distinct tokens of the rows with penalties]
    seen_tokens: NDArray[np.int64]
    output_counts: NDArray[np.float32]  # how often each was generated
    repetitions: NDArray[np.float32]
    frequencies: NDArray[np.float32]
    presences: NDArray[np.float32]

    @classmethod
    def of(cls, rows: Sized[Row], histories: Histories, vocab_size: int) -> Edits | None:
        """What the rows' parameters change; ``None`` where nothing."""
        edited = [(i, row.sequence) for i, row in enumerate(rows) if needs_edits(row.sequence)]
        if not edited:
            return None
        arrays: list[NDArray[Any]] = [*_bans(edited, vocab_size), *_biases(edited, vocab_size)]
        return cls(*arrays, *_penalties(edited, histories))

    def apply(self, logits: Tensor) -> Tensor:
        """A changed copy of ``logits`` ``[rows, vocab]`` f32."""
        on = {field.name: to_device(getattr(self, field.name), logits.device) for field in fields(self)}
        changed = logits.clone()
        changed[on["ban_rows"], on["ban_tokens"]] = BANNED
        changed[on["bias_rows"], on["bias_tokens"]] += on["biases"]
        values = changed[on["seen_rows"], on["seen_tokens"]]
        values = torch.where(values > 0, values / on["repetitions"], values * on["repetitions"])
        values = values - on["frequencies"] * on["output_counts"]
        changed[on["seen_rows"], on["seen_tokens"]] = values - on["presences"] * (on["output_counts"] > 0)
        return changed


def _bans(edited: Iterable[tuple[int, Sequence]], vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pairs = [
        (i, token_id)
        for i, sequence in edited
        if sequence.num_output_tokens < sequence.params.min_tokens
        for token_id in {*sequence.eos_token_ids, *sequence.params.stop_token_ids}
        if 0 <= token_id < vocab_size
    ]
    flat = np.array(pairs, np.int64).reshape(-1, 2)
    return flat[:, 0].copy(), flat[:, 1].copy()


def _biases(
    edited: Iterable[tuple[int, Sequence]], vocab_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    triples = [
        (i, token_id, bias)
        for i, sequence in edited
        for token_id, bias in sequence.params.logit_bias.items()
        if 0 <= token_id < vocab_size
    ]
    rows, tokens, biases = zip(*triples, strict=True) if triples else ((), (), ())
    return np.array(rows, np.int64), np.array(tokens, np.int64), np.array(biases, np.float32)


def _penalties(edited: Iterable[tuple[int, Sequence]], histories: Histories) -> tuple[NDArray[Any], ...]:
    """The six arrays from ``seen_rows`` on."""
    rows, tokens, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    strengths = [np.empty((3, 0), np.float32)]
    for i, sequence in edited:
        params = sequence.params
        if not params.needs_history:
            continue
        history = histories.of(sequence)
        num_distinct = len(history.token_ids)
        rows.append(np.full(num_distinct, i, np.int64))
        tokens.append(history.token_ids.astype(np.int64))
        counts.append(history.output_counts.copy())  # the history moves on while the device reads
        row = [params.repetition_penalty, params.frequency_penalty, params.presence_penalty]
        strengths.append(np.repeat(np.array(row, np.float32)[:, None], num_distinct, axis=1))
    return (np.concatenate(rows), np.concatenate(tokens), np.concatenate(counts), *np.concatenate(strengths, axis=1))
