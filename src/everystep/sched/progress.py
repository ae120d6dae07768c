"""What a step's result does to a sequence: counters move, a token is appended, the end is recognised.

Owns the rules of ending.  Ignorant of seats and lines.  Runs for every row of every step, hence the plain reads where
a property would say the same.
"""

from __future__ import annotations

from everystep.types import FinishReason, Row, Sequence, StepResult, TokenEvent


def advance(row: Row, result: StepResult, cache_tokens: int) -> TokenEvent | None:
    """Move one row's sequence on.  ``None`` if clients see nothing new: a chunk of a prompt."""
    sequence = row.sequence
    sequence_id = sequence.sequence_id
    if sequence_id in result.errors:
        return _fail(sequence, result.errors[sequence_id])
    sequence.num_computed_tokens = end = row.start + row.num_new_tokens
    if end < len(sequence.token_ids):
        return None
    token = result.tokens.get(sequence_id)
    if token is None:
        return _fail(sequence, "the forward pass gave no token")
    sequence.token_ids.append(token.token_id)
    sequence.finish_reason = _finish_reason(sequence, token.token_id, cache_tokens)
    return TokenEvent(sequence_id, token, sequence.finish_reason, None, sequence.num_cached_tokens)


def _finish_reason(sequence: Sequence, token_id: int, cache_tokens: int) -> FinishReason | None:
    """The end, if the newest token brings it.  A token that the whole cache couldn't take in is the last one."""
    params = sequence.params
    num_tokens = len(sequence.token_ids)
    num_output_tokens = num_tokens - sequence.num_prompt_tokens
    ends_text = (token_id in sequence.eos_token_ids and not params.ignore_eos) or token_id in params.stop_token_ids
    if ends_text and num_output_tokens >= params.min_tokens:
        return FinishReason.STOP
    if num_output_tokens >= params.max_tokens or num_tokens > cache_tokens:
        return FinishReason.LENGTH
    return None


def _fail(sequence: Sequence, error: str) -> TokenEvent:
    sequence.finish_reason = FinishReason.FAILED
    return TokenEvent(sequence.sequence_id, None, FinishReason.FAILED, error, sequence.num_cached_tokens)
