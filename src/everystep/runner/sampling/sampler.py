"""Draws the next token of every row of a step.

Owns the order of the operations.  Ignorant of models and schedulers.

The order is vLLM's: bans until ``min_tokens``, ``logit_bias``, penalties; then greedy rows take the largest logit;
for the others temperature, ``min_p``, ``top_k``, ``top_p``, draw.  Logprobs are of the model's own logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Sized
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks, block_width
from everystep.runner.sampling.draw import Recipe, draw
from everystep.runner.sampling.edits import edited
from everystep.runner.sampling.exp_sums import ExpSums
from everystep.runner.sampling.history import Histories
from everystep.runner.sampling.logprobs import with_logprobs
from everystep.types import Row, SampledToken

MAX_CHUNK_ELEMENTS = 2**22  # rows x vocabulary: bounds each temporary array to 16 MiB


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Each row's token, or its failure in words, by sequence id; a row is in exactly one of the two."""

    tokens: Mapping[str, SampledToken]
    errors: Mapping[str, str] = field(default_factory=dict)


class Sampler:
    """Called by one thread at a time; ``num_threads`` compute what is heavy."""

    def __init__(self, vocab_size: int, num_threads: int = 1) -> None:
        self.vocab_size = vocab_size
        self._histories = Histories(vocab_size)
        self._exp_sums = ExpSums(block_width(vocab_size), num_threads)

    def close(self) -> None:
        """Free the compiled models; nothing is sampled afterwards."""
        del self._exp_sums

    def sample(self, logits: NDArray[np.float32], rows: Sized[Row]) -> SampledRows:
        """A token for each of ``rows``, whose logits are ``logits`` ``[rows, vocab]`` in the same order.

        ``logits`` must be writable where a row has bans, bias or penalties: they are edited during the call and
        restored to the bit before it returns.  A row without a finite largest logit fails alone.
        """
        assert logits.shape == (len(rows), self.vocab_size), f"{logits.shape=} for {len(rows)} rows"
        with edited(logits, rows, self._histories):
            token_ids, errors = self._choose(logits, rows)
        tokens = dict(enumerate(map(SampledToken, token_ids.tolist())))
        self._add_logprobs(logits, rows, tokens, errors)
        ids = [row.sequence.sequence_id for row in rows]
        return SampledRows(
            {ids[i]: token for i, token in tokens.items() if i not in errors},
            {ids[i]: message for i, message in errors.items()},
        )

    def _choose(self, logits: NDArray[np.float32], rows: Sized[Row]) -> tuple[NDArray[np.intp], dict[int, str]]:
        """``[rows]`` token ids, and why by index where there is none."""
        token_ids = np.zeros(len(rows), np.intp)
        tops = np.empty(len(rows), np.float32)  # each row's largest logit; NaN where one is NaN
        drawn: list[int] = []
        for i, row in enumerate(rows):
            if not row.sequence.params.is_greedy:
                drawn.append(i)
                continue
            token_ids[i] = logits[i].argmax()  # the first NaN if there is one, else the lowest id among equals
            tops[i] = logits[i, token_ids[i]]
        for chunk in self._chunks(drawn):
            blocks = Blocks.of(logits, chunk)
            tops[chunk] = blocks.row_maxima()
            sound = np.flatnonzero(np.isfinite(tops[chunk]))
            if len(sound):
                recipe = _recipe([rows[i] for i in chunk[sound]])
                token_ids[chunk[sound]] = draw(blocks.select(sound), recipe, self._exp_sums)
        return token_ids, {int(i): _failure(float(tops[i])) for i in np.flatnonzero(~np.isfinite(tops))}

    def _add_logprobs(
        self, logits: NDArray[np.float32], rows: Sized[Row], tokens: dict[int, SampledToken], errors: dict[int, str]
    ) -> None:
        asked = [i for i, row in enumerate(rows) if row.sequence.params.logprobs is not None and i not in errors]
        for chunk in self._chunks(asked):
            num_top = np.array([rows[i].sequence.params.logprobs for i in chunk], np.intp)
            token_ids = np.array([tokens[i].token_id for i in chunk], np.intp)
            reported = with_logprobs(Blocks.of(logits, chunk), token_ids, num_top, self._exp_sums)
            for i, token in zip(chunk.tolist(), reported, strict=True):
                if token is None:
                    errors[i] = "the model's logits aren't finite: there is no log-probability to report"
                else:
                    tokens[i] = token

    def _chunks(self, indices: list[int]) -> Iterator[NDArray[np.intp]]:
        size = max(1, MAX_CHUNK_ELEMENTS // self.vocab_size)
        for start in range(0, len(indices), size):
            yield np.array(indices[start : start + size], np.intp)


def _recipe(rows: Sized[Row]) -> Recipe:
    sequences = [row.sequence for row in rows]
    return Recipe(
        temperatures=np.array([s.params.temperature for s in sequences], np.float64),
        top_ks=np.array([s.params.top_k for s in sequences], np.intp),
        top_ps=np.array([s.params.top_p for s in sequences], np.float64),
        min_ps=np.array([s.params.min_p for s in sequences], np.float64),
        seeds=np.array([s.seed for s in sequences], np.uint64),
        positions=np.array([s.num_tokens for s in sequences], np.uint64),
    )


def _failure(top: float) -> str:
    if top == -np.inf:
        return "no token can be drawn: every logit is -inf, by bans or by the model"
    return f"no token can be drawn: the largest logit is {top}"
