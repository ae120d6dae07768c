"""Which token each row of a step gets: the largest score, or the draw that its parameters ask for.

Owns what becomes of one step's scores.  Ignorant of threads and of how the scores came to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from everystep.runner.sampling import SampledRows, Sampler
from everystep.sampling_params import SamplingParams
from everystep.types import Row, SampledToken, StepResult

NOTHING = SampledRows({})


class Draws:
    """For each step first ``see``, then ``choose`` if any row isn't plainly greedy, then ``result``."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._logits: Tensor | None = None  # [rows, vocab], of the step at hand
        self._sampled = NOTHING

    def see(self, logits: Tensor) -> None:
        """The model's own logits ``[rows, vocab]`` of a new step."""
        self._logits, self._sampled = logits, NOTHING

    def choose(self, scores: Tensor, live: Mapping[int, Row]) -> Tensor:
        """Of rows that aren't plainly greedy leave only the drawn token in the scores ``[rows, vocab]`` float32.

        ``live`` are the rows that go on, by their index.
        """
        chosen = [index for index, row in live.items() if not is_plain(row.sequence.params)]
        if not chosen:
            return scores
        self._sampled = self._sampler.sample(scores[chosen].numpy(), [live[index] for index in chosen])
        for index in chosen:
            token = self._sampled.tokens.get(live[index].sequence.sequence_id)
            if token is not None:
                scores[index] = -math.inf
                scores[index, token.token_id] = 0.0
        return scores

    def result(self, token_ids: Tensor, live: Mapping[int, Row]) -> StepResult:
        """The live rows' tokens of ``token_ids`` ``[rows]``.  A row whose largest logit isn't finite fails alone."""
        assert self._logits is not None
        tops = self._logits.gather(1, token_ids[:, None])[:, 0].tolist()  # [rows]: of plainly greedy ones the largest
        ids, self._logits = token_ids.tolist(), None
        tokens, errors = dict(self._sampled.tokens), dict(self._sampled.errors)
        for index, row in live.items():
            name = row.sequence.sequence_id
            if name in tokens or name in errors:
                continue
            if math.isfinite(tops[index]):
                tokens[name] = SampledToken(ids[index])
            else:
                errors[name] = f"no token can be drawn: the largest logit is {tops[index]}"
        return StepResult(tokens, errors)


def is_plain(params: SamplingParams) -> bool:
    """Whether the largest logit is the whole answer."""
    return (
        params.is_greedy
        and params.logprobs is None
        and not params.logit_bias
        and not params.needs_history
        and params.min_tokens == 0
    )
