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
    """First ``choose``, then, when generate has taken each row's largest score, ``result``."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._scores: Tensor | None = None  # [rows, vocab] float32, of the step between the two calls
        self._sampled = NOTHING

    def choose(self, scores: Tensor, live: Mapping[int, Row]) -> None:
        """Leave the drawn token alone in the scores ``[rows, vocab]`` of rows that aren't plainly greedy.

        ``live`` are the rows that go on, by their index.  In a round of plainly greedy ones nothing is computed.
        """
        self._scores, self._sampled = scores, NOTHING
        chosen = [index for index, row in live.items() if not is_plain(row.sequence.params)]
        if not chosen:
            return
        self._sampled = self._sampler.sample(scores[chosen].numpy(), [live[index] for index in chosen])
        for index in chosen:
            token = self._sampled.tokens.get(live[index].sequence.sequence_id)
            if token is not None:
                scores[index] = -math.inf
                scores[index, token.token_id] = 0.0

    def result(self, token_ids: Tensor, live: Mapping[int, Row]) -> StepResult:
        """The live rows' tokens of ``token_ids`` ``[rows]``.  A row whose largest score isn't finite fails alone."""
        assert self._scores is not None
        tops = self._scores.gather(1, token_ids[:, None])[:, 0].tolist()  # [rows]
        ids, self._scores = token_ids.tolist(), None
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
