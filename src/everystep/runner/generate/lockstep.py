"""A round as one ``generate()`` call that hands over each token and waits until the next step is asked for.

Owns the meeting of the thread that steps and the thread that generates.  Ignorant of policies and of how a token is
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sized
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from everystep.errors import EngineFailed
from everystep.runner.generate.draws import Draws, is_plain
from everystep.runner.generate.hooks import logits_shown, positions_below
from everystep.runner.generate.loading import LoadedModel, plain_config
from everystep.runner.generate.rectangle import left_padded
from everystep.types import Row, StepResult


class Round:
    """One thread calls ``step`` and ``abandon``, another ``generate``.

    They never run at once: a step waits for its tokens, and generate, between two tokens, for the next step.  So the
    sequences' states are settled whenever generate looks at them.
    """

    def __init__(self, rows: Sized[Row], draws: Draws) -> None:
        """``rows`` are the first step's: whole prompts."""
        self.rectangle = left_padded([row.sequence.token_ids for row in rows])
        self.max_new_tokens = max(row.sequence.params.max_tokens for row in rows)
        self._index = {row.sequence.sequence_id: index for index, row in enumerate(rows)}
        self._sequences = {row.sequence.sequence_id: row.sequence for row in rows}
        self._is_plain = all(is_plain(row.sequence.params) for row in rows)
        self._draws = draws
        self._asked: SimpleQueue[Sized[Row]] = SimpleQueue()
        self._given: SimpleQueue[StepResult | BaseException] = SimpleQueue()
        self._live: Mapping[int, Row] = {}  # who goes on, by row of the rectangle
        self._num_given = 0

    # --- the thread that steps -------------------------------------------------------------------
    def is_continued_by(self, rows: Sized[Row]) -> bool:
        """Whether each is a member about to compute the token that it got last."""
        return all(
            row.sequence is self._sequences.get(row.sequence.sequence_id)
            and row.start == row.sequence.num_prompt_tokens + self._num_given - 1
            and row.num_new_tokens == 1
            for row in rows
        )

    def step(self, rows: Sized[Row]) -> StepResult:
        """A token for each of ``rows``; members that aren't among them have ended.  Raises what generate raised."""
        self._asked.put(rows)
        given = self._given.get()
        if isinstance(given, BaseException):
            raise given
        return given

    def abandon(self) -> None:
        """Nobody will ask for another step: generate ends when it next looks."""
        self._asked.put(())

    # --- the thread that generates ---------------------------------------------------------------
    def generate(self, loaded: LoadedModel) -> None:
        """The round's one call."""
        if not self._await_step():
            return
        try:
            with logits_shown(loaded.model, self._draws.see), self._bounded_positions(loaded):
                loaded.model.generate(
                    self.rectangle.input_ids,
                    attention_mask=self.rectangle.attention_mask,
                    generation_config=plain_config(self.max_new_tokens),
                    logits_processor=[] if self._is_plain else [_Choose(self)],
                    stopping_criteria=[_HandOver(self)],
                )
            self._given.put(EngineFailed("generate() has ended"))  # heard only by a step too many
        except BaseException as error:  # the step that waits must hear of it
            self._given.put(error)

    def choose(self, scores: Tensor) -> Tensor:
        """``[rows, vocab]`` scores whose largest is each row's token."""
        return self._draws.choose(scores, self._live)

    def hand_over(self, token_ids: Tensor) -> Tensor:
        """Give the tokens ``[rows]``, wait for the next step, and say who has ended: ``[rows]`` bool."""
        result = self._draws.result(token_ids, self._live)
        self._num_given += 1
        is_last = self._num_given == self.max_new_tokens
        self._given.put(result)
        if is_last or not self._await_step():
            self._live = {}
        return torch.tensor([index not in self._live for index in range(len(token_ids))])

    def _await_step(self) -> bool:
        """Wait for the next step's rows; false if there won't be one."""
        rows = self._asked.get()
        self._live = {self._index[row.sequence.sequence_id]: row for row in rows}
        return bool(rows)

    def _bounded_positions(self, loaded: LoadedModel) -> Any:
        """Rows that have ended are computed on, and may so leave the context: only such a round needs a bound."""
        limit = loaded.max_positions
        end = self.rectangle.width + self.max_new_tokens - 1  # the last token is never computed
        return nullcontext() if limit is None or end <= limit else positions_below(limit, loaded.model)


class _Choose(LogitsProcessor):  # type: ignore[misc]
    def __init__(self, round_: Round) -> None:
        self._round = round_

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return self._round.choose(scores)


class _HandOver(StoppingCriteria):  # type: ignore[misc]
    """Called once a token, when it stands at the end of ``input_ids`` ``[rows, tokens so far]``."""

    def __init__(self, round_: Round) -> None:
        self._round = round_

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        return self._round.hand_over(input_ids[:, -1])
