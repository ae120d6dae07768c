"""One row's share of a step result: its counters move, it may end, its client hears of it.

Owns the rules of ending by token, by length and by failure.  Ignorant of seats, blocks and lines.
"""

from __future__ import annotations

from everystep.types import FinishReason, Row, Sequence, StepResult, TokenEvent


def advance(row: Row, result: StepResult, num_cache_tokens: int) -> TokenEvent | None:
    """Take the row's part of ``result`` into its sequence; ``None`` if there is nothing to tell.

    ``num_cache_tokens`` is what the whole pool holds.  The caller skips sequences that ended since the plan, and
    frees what one that ends here holds.
    """
    sequence = row.sequence
    sequence_id = sequence.sequence_id
    if sequence_id in result.errors:
        return _fail(sequence, result.errors[sequence_id])
    is_sampled = row.samples
    sequence.num_computed_tokens = row.end
    if not is_sampled:
        return None
    token = result.tokens.get(sequence_id)
    if token is None:
        return _fail(sequence, "the forward pass gave no token")
    sequence.token_ids.append(token.token_id)
    sequence.finish_reason = finish_reason(sequence, num_cache_tokens)
    return TokenEvent(sequence_id, token, sequence.finish_reason, None, sequence.num_cached_tokens)


def finish_reason(sequence: Sequence, num_cache_tokens: int) -> FinishReason | None:
    """Why the sequence ends with its last token, if it does.

    A stop token ends it unless fewer than ``min_tokens`` are out.  One whose last token no longer fits the whole
    cache has no next step, so it ends as one that used up its length.
    """
    params = sequence.params
    last = sequence.token_ids[-1]
    num_output_tokens = len(sequence.token_ids) - sequence.num_prompt_tokens
    ends_text = (last in sequence.eos_token_ids and not params.ignore_eos) or last in params.stop_token_ids
    if ends_text and num_output_tokens >= params.min_tokens:
        return FinishReason.STOP
    if num_output_tokens >= params.max_tokens or len(sequence.token_ids) > num_cache_tokens:
        return FinishReason.LENGTH
    return None


def _fail(sequence: Sequence, error: str) -> TokenEvent:
    sequence.finish_reason = FinishReason.FAILED
    return TokenEvent(sequence.sequence_id, None, FinishReason.FAILED, error, sequence.num_cached_tokens)
