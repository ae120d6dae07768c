"""What a step's result does to a sequence: counters move, a token is appended, the end is recognised.

Owns the rules of ending.  Ignorant of seats and lines.
"""

from __future__ import annotations

from everystep.types import FinishReason, Row, SampledToken, Sequence, StepResult, TokenEvent


def advance(row: Row, result: StepResult, cache_tokens: int) -> TokenEvent | None:
    """Move one row's sequence on.  ``None`` if clients see nothing new: a chunk of a prompt."""
    sequence = row.sequence
    error = result.errors.get(sequence.sequence_id)
    if error is not None:
        return _fail(sequence, error)
    samples = row.samples
    sequence.num_computed_tokens = row.end
    if not samples:
        return None
    token = result.tokens.get(sequence.sequence_id)
    if token is None:
        return _fail(sequence, "the forward pass gave no token")
    sequence.token_ids.append(token.token_id)
    sequence.finish_reason = _finish_reason(sequence, token, cache_tokens)
    return TokenEvent(sequence.sequence_id, token, sequence.finish_reason, num_cached_tokens=sequence.num_cached_tokens)


def _finish_reason(sequence: Sequence, token: SampledToken, cache_tokens: int) -> FinishReason | None:
    """The end, if the newest token brings it.  A token that the whole cache couldn't take in is the last one."""
    params = sequence.params
    if sequence.num_output_tokens >= params.min_tokens:
        if token.token_id in params.stop_token_ids:
            return FinishReason.STOP
        if token.token_id in sequence.eos_token_ids and not params.ignore_eos:
            return FinishReason.STOP
    if sequence.num_output_tokens >= params.max_tokens or sequence.num_tokens > cache_tokens:
        return FinishReason.LENGTH
    return None


def _fail(sequence: Sequence, error: str) -> TokenEvent:
    sequence.finish_reason = FinishReason.FAILED
    return TokenEvent(sequence.sequence_id, finish_reason=FinishReason.FAILED, error=error)
