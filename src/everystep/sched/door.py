"""What is refused before it waits: sequences that can never fit.

Owns the limits' arithmetic and words.  Pure, so that the process that takes requests can ask it without a policy.
"""

from __future__ import annotations

from everystep.errors import InvalidRequest, PromptTooLong


def check_fits(
    num_prompt_tokens: int, max_tokens: int, *, num_cache_tokens: int, max_model_len: int | None = None
) -> None:
    """Raise :class:`PromptTooLong` if the context or the cache can never hold the sequence.

    ``num_cache_tokens`` is what the whole block pool holds.  A longest possible end beyond it is fine: such a
    sequence ends with ``length`` when it outgrows the cache.  A prompt that leaves no room for a single token isn't.
    """
    if num_prompt_tokens < 1:
        raise InvalidRequest("the prompt is empty: at least one token is needed", param="prompt")
    if max_model_len is not None:
        _check_context(num_prompt_tokens, max_tokens, max_model_len)
    if num_prompt_tokens + 1 > num_cache_tokens:
        raise PromptTooLong(
            f"the prompt has {num_prompt_tokens} tokens; the KV cache holds {num_cache_tokens}, prompt and output",
            param="prompt",
        )


def _check_context(num_prompt_tokens: int, max_tokens: int, max_model_len: int) -> None:
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise PromptTooLong(
            f"the prompt has {num_prompt_tokens} tokens; the context holds {max_model_len}, prompt and output",
            param="prompt",
        )
    if max_tokens > room:
        raise PromptTooLong(
            f"max_tokens={max_tokens} but the prompt leaves room for {room} of {max_model_len}", param="max_tokens"
        )
