"""Draws the next token of every row of a step.

Owns the order of the operations and the split of the work over threads.  Ignorant of models and schedulers.

The order is vLLM's: bans until ``min_tokens``, ``logit_bias``, penalties; then greedy rows take the largest logit;
for the others temperature, ``min_p``, ``top_k``, ``top_p``, draw.  Logprobs are of the model's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks
from everystep.runner.sampling.draw import Recipe, draw
from everystep.runner.sampling.edits import edited
from everystep.runner.sampling.history import Histories
from everystep.runner.sampling.logprobs import with_logprobs
from everystep.types import Row, SampledToken

MAX_CHUNK_ROWS = 16  # bounds a thread's temporary arrays to some rows of logits
MIN_CHUNK_ROWS = 2  # a hand-over to a thread costs a fair part of a row


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Each row's token, or its failure in words, by sequence id; a row is in exactly one of the two."""

    tokens: Mapping[str, SampledToken]
    errors: Mapping[str, str] = field(default_factory=dict)


class Sampler:
    """Called by one thread at a time; uses up to ``num_threads`` itself, and starts them when first needed."""

    def __init__(self, vocab_size: int, num_threads: int = 1) -> None:
        self.vocab_size = vocab_size
        self.num_threads = num_threads
        self._histories = Histories(vocab_size)
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def sample(self, logits: NDArray[np.float32], rows: Sized[Row]) -> SampledRows:
        """A token for each of ``rows``, whose logits are ``logits`` ``[rows, vocab]`` in the same order.

        ``logits`` must be writable where a row has bans, bias or penalties: they are edited during the call and
        restored to the bit before it returns.
        """
        assert logits.shape == (len(rows), self.vocab_size), f"{logits.shape=} for {len(rows)} rows"
        errors: dict[int, str] = {}
        with edited(logits, rows, self._histories):
            token_ids = self._choose(logits, rows, errors)  # [rows]
        tokens = [SampledToken(token_id) for token_id in token_ids.tolist()]
        self._report_logprobs(logits, rows, tokens, token_ids, errors)
        ids = [row.sequence.sequence_id for row in rows]
        return SampledRows(
            {ids[i]: token for i, token in enumerate(tokens) if i not in errors},
            {ids[i]: message for i, message in errors.items()},
        )

    def _choose(self, logits: NDArray[np.float32], rows: Sized[Row], errors: dict[int, str]) -> NDArray[np.intp]:
        token_ids = np.zeros(len(rows), np.intp)
        tops = np.empty(len(rows), np.float32)  # each row's largest logit
        random: list[int] = []
        for i, row in enumerate(rows):
            if row.sequence.params.is_greedy:
                token_ids[i] = logits[i].argmax()  # the first NaN if there is one, else the lowest id among equals
                tops[i] = logits[i, token_ids[i]]
            else:
                random.append(i)

        def draw_chunk(chunk: NDArray[np.intp]) -> None:
            blocks = Blocks.of(logits, chunk)
            tops[chunk] = blocks.row_maxima()
            sound = np.flatnonzero(np.isfinite(tops[chunk]))
            if len(sound):
                recipe = _recipe([rows[i] for i in chunk[sound]])
                token_ids[chunk[sound]] = draw(blocks.select(sound), recipe)

        self._for_chunks(draw_chunk, random)
        errors.update((int(i), _failure(float(tops[i]))) for i in np.flatnonzero(~np.isfinite(tops)))
        return token_ids

    def _report_logprobs(
        self,
        logits: NDArray[np.float32],
        rows: Sized[Row],
        tokens: list[SampledToken],
        token_ids: NDArray[np.intp],
        errors: dict[int, str],
    ) -> None:
        asked = [i for i, row in enumerate(rows) if row.sequence.params.logprobs is not None and i not in errors]

        def report_chunk(chunk: NDArray[np.intp]) -> None:
            num_top = np.array([rows[i].sequence.params.logprobs for i in chunk], np.intp)
            reported = with_logprobs(Blocks.of(logits, chunk), token_ids[chunk], num_top)
            for i, token in zip(chunk.tolist(), reported, strict=True):
                if token is None:
                    errors[i] = "the model's logits aren't finite: no log-probability to report"
                else:
                    tokens[i] = token

        self._for_chunks(report_chunk, asked)

    def _for_chunks(self, work: Callable[[NDArray[np.intp]], None], indices: list[int]) -> None:
        """``work`` on all ``indices``, in chunks over the threads; chunks write to disjoint places."""
        chunks = list(_chunks(np.array(indices, np.intp), self.num_threads))
        if self.num_threads == 1 or len(chunks) == 1:
            for chunk in chunks:
                work(chunk)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_threads, thread_name_prefix="everystep-sampling")
        list(self._pool.map(work, chunks))


def _chunks(indices: NDArray[np.intp], num_threads: int) -> Iterator[NDArray[np.intp]]:
    size = max(MIN_CHUNK_ROWS, min(MAX_CHUNK_ROWS, -(-len(indices) // num_threads)))
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


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
        return "no token can be drawn: every logit is -inf (banned, or the model's)"
    return f"no token can be drawn: the largest logit is {top}"
