"""What vLLM says of a request, as events of ours.

Owns the reading of its ``RequestOutput`` (deltas of one sequence).  Ignorant of vLLM's classes: it reads attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from everystep.types import FinishReason, SampledToken, TokenEvent, TokenLogprob

REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class CompletionDelta(Protocol):
    """The part of ``vllm.outputs.CompletionOutput`` that is read."""

    token_ids: Sequence[int]
    logprobs: Any  # per token: token id → object with ``logprob`` and ``rank``
    finish_reason: str | None


class RequestDelta(Protocol):
    """The part of ``vllm.RequestOutput`` that is read."""

    outputs: Sequence[CompletionDelta]
    num_cached_tokens: int | None
    metrics: Any  # with ``scheduled_ts``, on the monotonic clock


def read_events(sequence_id: str, output: RequestDelta, num_top: int | None) -> tuple[TokenEvent, ...]:
    """One event a token; the last has the finish reason, where there is one.  ``num_top``: likeliest to report."""
    (delta,) = output.outputs
    reason = finish_reason(delta.finish_reason)
    error = f"vLLM ended it: {delta.finish_reason}" if reason is FinishReason.FAILED else None
    num_cached = output.num_cached_tokens or 0
    tokens = [_token(token_id, i, delta, num_top) for i, token_id in enumerate(delta.token_ids)]
    events = [TokenEvent(sequence_id, token, num_cached_tokens=num_cached) for token in tokens]
    if reason is not None:
        last = tokens[-1] if tokens else None
        events[-1:] = [TokenEvent(sequence_id, last, reason, error, num_cached)]
    return tuple(events)


def finish_reason(words: str | None) -> FinishReason | None:
    """An end that neither the model nor a limit brought (``abort``, ``error``) is a failure: we asked for none."""
    return None if words is None else REASONS.get(words, FinishReason.FAILED)


def scheduled_s(output: RequestDelta) -> float | None:
    """When vLLM first scheduled the request, on the monotonic clock; ``None`` where it doesn't say."""
    return getattr(output.metrics, "scheduled_ts", 0.0) or None


def _token(token_id: int, index: int, delta: CompletionDelta, num_top: int | None) -> SampledToken:
    if num_top is None or delta.logprobs is None:
        return SampledToken(token_id)
    return sampled_token(token_id, delta.logprobs[index], num_top)


def sampled_token(token_id: int, logprobs: Mapping[int, Any], num_top: int) -> SampledToken:
    """The drawn token is among vLLM's logprobs whatever its rank; the likeliest are those of the first ranks."""
    ranked = sorted((entry.rank, other) for other, entry in logprobs.items() if entry.rank <= num_top)
    top = tuple(TokenLogprob(other, float(logprobs[other].logprob)) for _, other in ranked)
    return SampledToken(token_id, float(logprobs[token_id].logprob), top)
