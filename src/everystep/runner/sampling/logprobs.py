"""Log-probabilities to report: of the drawn token and of the likeliest ones.

Owns what is reported: the model's own distribution, log-softmax of its logits at temperature 1, before bias,
penalties, bans and filters.  OpenAI and vLLM (``raw_logprobs``) report the same.  Ignorant of how a token was drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from everystep.runner.sampling.blocks import Blocks
from everystep.runner.sampling.exp_sums import ExpSums
from everystep.runner.sampling.softmax import Softmax
from everystep.types import SampledToken, TokenLogprob


def with_logprobs(
    blocks: Blocks, token_ids: NDArray[np.intp], num_top: NDArray[np.intp], exp_sums: ExpSums
) -> list[SampledToken | None]:
    """Each row's drawn token with its logprob and the ``num_top`` likeliest; ``None`` where logits aren't finite.

    Likeliest first; among equals the lower token id is first.  Tokens of probability 0 aren't listed.
    """
    normalisers = _log_sum_exp(blocks, exp_sums)  # [rows]
    drawn = blocks.values[np.arange(len(token_ids)), token_ids // blocks.width, token_ids % blocks.width]
    logprobs = drawn - normalisers
    tops = _likeliest(blocks, normalisers, num_top)
    return [
        SampledToken(int(token_id), float(logprob), top) if np.isfinite(logprob) else None
        for token_id, logprob, top in zip(token_ids, logprobs, tops, strict=True)
    ]


def _log_sum_exp(blocks: Blocks, exp_sums: ExpSums) -> NDArray[np.float64]:
    softmax = Softmax.of(blocks, np.ones(len(blocks.values)), exp_sums)
    with np.errstate(invalid="ignore"):  # a row that isn't finite: its NaN is the answer
        normalisers: NDArray[np.float64] = softmax.tops + np.log(softmax.masses().sum(axis=1))
        return normalisers


def _likeliest(
    blocks: Blocks, normalisers: NDArray[np.float64], num_top: NDArray[np.intp]
) -> list[tuple[TokenLogprob, ...]]:
    asked = np.flatnonzero((num_top > 0) & np.isfinite(normalisers))
    tops: list[tuple[TokenLogprob, ...]] = [()] * len(num_top)
    if not len(asked):
        return tops
    leaders = blocks.leaders(asked, np.minimum(num_top[asked], blocks.vocab_size))
    for start, row in zip(leaders.starts, asked, strict=True):
        which = slice(start, start + min(num_top[row], blocks.vocab_size))
        pairs = zip(leaders.token_ids[which].tolist(), (leaders.values[which] - normalisers[row]).tolist(), strict=True)
        tops[row] = tuple(TokenLogprob(token_id, logprob) for token_id, logprob in pairs if logprob > -np.inf)
    return tops
