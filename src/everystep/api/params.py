"""The one place where a request's fields become :class:`SamplingParams`.

Owns each protocol's defaults, and what a client's spelling means: a seed below zero, a ``top_k`` of -1, the string keys
of ``logit_bias``.  Ignorant of prompts and of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from everystep.api.native_bodies import NativeOptions
from everystep.api.openai_bodies import ChatBody, CompletionBody, OpenAIOptions
from everystep.errors import InvalidParameter
from everystep.sampling_params import MAX_LOGPROBS, MAX_SEED, SamplingParams

COMPLETION_MAX_TOKENS = 16  # OpenAI's default
MIN_SEED = -(2**63)
T = TypeVar("T")


def room_for(prompts: Sequence[Sequence[int]], max_model_len: int) -> int:
    """Tokens that the longest prompt leaves in the context; at least 1, so that the door may refuse with its words."""
    return max(1, max_model_len - max(map(len, prompts), default=0))


def native_params(body: NativeOptions, room: int) -> SamplingParams:
    """Greedy unless asked otherwise.  ``room`` cuts the default of ``max_tokens``, never a client's own."""
    is_given = "max_tokens" in body.model_fields_set
    return SamplingParams(
        max_tokens=body.max_tokens if is_given else min(body.max_tokens, room),
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k or 0,
        seed=as_seed(body.seed),
        stop=_stops(body.stop),
        ignore_eos=body.ignore_eos,
    )


def completion_params(body: CompletionBody, room: int, vocab_size: int) -> SamplingParams:
    """For ``/v1/completions``."""
    max_tokens = _or(body.max_tokens, min(COMPLETION_MAX_TOKENS, room))
    return _openai_params(body, max_tokens, body.logprobs, vocab_size)


def chat_params(body: ChatBody, room: int, vocab_size: int) -> SamplingParams:
    """For ``/v1/chat/completions``: as long as the context goes, unless asked otherwise."""
    return _openai_params(body, _or(_chat_max_tokens(body), room), _chat_logprobs(body), vocab_size)


def _openai_params(body: OpenAIOptions, max_tokens: int, logprobs: int | None, vocab_size: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=_or(body.temperature, 1.0),
        top_p=_or(body.top_p, 1.0),
        top_k=0 if body.top_k in (None, -1) else body.top_k,
        min_p=_or(body.min_p, 0.0),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        logit_bias=_logit_bias(body.logit_bias or {}, vocab_size),
        seed=as_seed(body.seed),
        n=_or(body.n, 1),
        stop=_stops(body.stop),
        min_tokens=_or(body.min_tokens, 0),
        ignore_eos=_or(body.ignore_eos, False),
        logprobs=logprobs,
    )


def _chat_max_tokens(body: ChatBody) -> int | None:
    """``max_completion_tokens`` is the newer name of ``max_tokens``."""
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise InvalidParameter(f"max_tokens={old} and max_completion_tokens={new} disagree", param="max_tokens")
    return old if new is None else new


def _chat_logprobs(body: ChatBody) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidParameter(f"top_logprobs={body.top_logprobs} needs logprobs=true", param="top_logprobs")
    top = _or(body.top_logprobs, 0)
    if not 0 <= top <= MAX_LOGPROBS:
        raise InvalidParameter(f"top_logprobs={top} must be from 0 to {MAX_LOGPROBS}", param="top_logprobs")
    return top if body.logprobs else None


def as_seed(seed: int | None) -> int | None:
    """OpenAI's seeds are signed 64-bit numbers, ours unsigned: the same bits."""
    return seed & MAX_SEED if seed is not None and MIN_SEED <= seed < 0 else seed


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


def _logit_bias(biases: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    """JSON has string keys only: ``{"50256": -100}``."""
    for key in biases:
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) < vocab_size):
            raise InvalidParameter(
                f"logit_bias has the key {key[:20]!r}; keys are token ids from 0 to {vocab_size - 1}",
                param="logit_bias",
            )
    return {int(key): bias for key, bias in biases.items()}


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
