"""A generation as whole answers: what replies without a stream are made of.

Owns the sum of a choice's deltas.  A choice that failed fails the request; the others are aborted with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi.requests import Request

from everystep.api.disconnects import while_connected
from everystep.engine.client import Generation
from everystep.errors import ClientGone
from everystep.messages import Delta
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, SampledToken


@dataclass(slots=True)
class Answer:
    """One choice, whole."""

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    finish_reason: str | None = None
    num_cached_tokens: int = 0


async def whole_answers(request: Request, generation: Generation) -> list[Answer]:
    """All choices by index.  Raises the typed error of one that failed; aborts if the client leaves."""
    async with generation:
        return await while_connected(request, _collect(generation))


async def _collect(generation: Generation) -> list[Answer]:
    answers = [Answer() for _ in generation.sequence_ids]
    pieces: list[list[str]] = [[] for _ in answers]
    async for delta in generation:
        raise_failure(delta)
        pieces[delta.index].append(delta.text)
        answer = answers[delta.index]
        answer.tokens += delta.tokens
        answer.num_cached_tokens = delta.num_cached_tokens
        answer.finish_reason = delta.finish_reason
    for answer, texts in zip(answers, pieces, strict=True):
        answer.text = "".join(texts)
    return answers


def num_shown(params: SamplingParams, answers: Sequence[Answer]) -> int:
    """Tokens that the reply shows one by one, with logprobs; without these it shows texts, which are ready."""
    if params.logprobs is None:
        return 0
    return sum(len(answer.tokens) for answer in answers) * (1 + params.logprobs)


def raise_failure(delta: Delta) -> None:
    """The typed error of a choice that ended by no doing of its own."""
    if delta.failure is not None:
        raise delta.failure
    if delta.finish_reason is FinishReason.ABORTED:
        raise ClientGone("the request was taken back")
