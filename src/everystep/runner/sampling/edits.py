"""What changes logits before any draw: bans until min_tokens, logit bias, penalties.

Owns their formulas and order, which are vLLM's: bans, bias, then repetition, frequency, presence.  Ignorant of
probabilities.  Touches only the logits named by a parameter or present in the text, and puts them back afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Sized
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.history import Histories, History
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence

BANNED = np.float32(-np.inf)


@contextmanager
def edited(logits: NDArray[np.float32], rows: Sized[Row], histories: Histories) -> Iterator[None]:
    """Inside, ``logits`` ``[rows, vocab]`` are edited in place; outside, they are to the bit what they were."""
    saved: list[tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.float32]]] = []
    try:
        for row_logits, row in zip(logits, rows, strict=True):
            if needs_edits(row.sequence):
                token_ids = _touched(row.sequence, histories, len(row_logits))
                saved.append((row_logits, token_ids, row_logits[token_ids]))
                _edit(row_logits, row.sequence, histories)
        yield
    finally:
        for row_logits, token_ids, values in saved:
            row_logits[token_ids] = values


def needs_edits(sequence: Sequence) -> bool:
    """Whether any logit of the sequence's next token is changed before the draw."""
    params = sequence.params
    return bool(params.logit_bias) or params.needs_history or _is_too_short(sequence)


def _is_too_short(sequence: Sequence) -> bool:
    return sequence.num_output_tokens < sequence.params.min_tokens


def _touched(sequence: Sequence, histories: Histories, vocab_size: int) -> NDArray[np.intp]:
    """Every token id whose logit an edit may write; repeats do no harm."""
    parts = [_bias(sequence.params, vocab_size)[0]]
    if _is_too_short(sequence):
        parts.append(_stops(sequence, vocab_size))
    if sequence.params.needs_history:
        parts.append(histories.of(sequence).token_ids)
    return np.concatenate(parts)


def _edit(row: NDArray[np.float32], sequence: Sequence, histories: Histories) -> None:
    params = sequence.params
    if _is_too_short(sequence):
        row[_stops(sequence, len(row))] = BANNED
    if params.logit_bias:
        token_ids, biases = _bias(params, len(row))
        row[token_ids] += biases
    if params.needs_history:
        _penalise(row, params, histories.of(sequence))


def _penalise(row: NDArray[np.float32], params: SamplingParams, history: History) -> None:
    """Repetition over prompt and output (CTRL), frequency and presence over the output (OpenAI)."""
    values = row[history.token_ids]  # [distinct]
    penalty = np.float32(params.repetition_penalty)
    values = np.where(values > 0, values / penalty, values * penalty)
    values -= np.float32(params.frequency_penalty) * history.output_counts
    values -= np.float32(params.presence_penalty) * (history.output_counts > 0)
    row[history.token_ids] = values


def _stops(sequence: Sequence, vocab_size: int) -> NDArray[np.intp]:
    stops = {*sequence.eos_token_ids, *sequence.params.stop_token_ids}
    return np.array([token_id for token_id in stops if 0 <= token_id < vocab_size], np.intp)


def _bias(params: SamplingParams, vocab_size: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    known = [(token_id, bias) for token_id, bias in params.logit_bias.items() if 0 <= token_id < vocab_size]
    return np.array([token_id for token_id, _ in known], np.intp), np.array([bias for _, bias in known], np.float32)
