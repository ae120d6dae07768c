"""What can never run, said at the door with its numbers.

Owns the rule that a prompt must leave room for an answer, in the context and in the cache.  Pure.
"""

from __future__ import annotations

from everystep.errors import InvalidRequest, PromptTooLong


def check_fits(num_prompt_tokens: int, max_tokens: int, *, max_model_len: int | None, cache_tokens: int) -> None:
    """Raise unless the prompt, its whole answer and the context agree, and the cache holds the prompt and a token.

    An answer that outgrows the cache alone is no error: it ends with ``length``.
    """
    if num_prompt_tokens < 1:
        raise InvalidRequest("the prompt is empty: at least one token is needed", param="prompt")
    if max_model_len is not None:
        _check_context(num_prompt_tokens, max_tokens, max_model_len)
    if num_prompt_tokens + 1 > cache_tokens:
        raise PromptTooLong(
            f"the prompt has {num_prompt_tokens} tokens; the KV cache holds {cache_tokens}, prompt and output "
            "(--kv-cache-gib)",
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
