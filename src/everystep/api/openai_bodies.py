"""Bodies of the OpenAI-compatible endpoints.

Owns names and types, and the list of OpenAI's fields that this version doesn't do: those are taken only with the value
that asks for nothing.  Ranges are :class:`everystep.sampling_params.SamplingParams`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from everystep.api.first_fault import MAX_MESSAGES, AtFirst, TokenBiases, check_num_parts
from everystep.api.native_bodies import TIMEOUT_WORDS, Body, Priority, TimeoutS
from everystep.api.ranges import (
    Choices,
    Logprobs,
    MaxTokens,
    MaxTokensOrNone,
    MinP,
    MinTokens,
    Penalty,
    RepetitionPenalty,
    Seed,
    Stop,
    Stops,
    Temperature,
    TopKOrOff,
    TopP,
    TruncateTo,
)
from everystep.errors import UnsupportedOption


@dataclass(frozen=True)
class NotDone:
    """Marks a field that is known, and refused unless it asks for nothing."""


UNDONE_WORDS = "not supported: refused unless it asks for nothing"
Undone = Annotated[Any, NotDone(), Field(description=UNDONE_WORDS)]
Label = Annotated[Any, Field(description="a label of the caller's; has no effect on the answer")]
PromptField = Annotated[
    Any,  # read by everystep.api.prompts: a union would be tried type by type, with a complaint for each of its items
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}, "minItems": 1},
            ]
        }
    ),
]


class StreamOptions(Body):
    include_usage: bool = False


class OpenAIOptions(Body):
    """Fields of both endpoints.  ``null`` is as good as absent, as in OpenAI's API."""

    model: str
    n: Choices | None = None
    stop: Stop | Stops | None = None
    seed: Seed | None = None
    temperature: Temperature | None = Field(None, description="default 1")
    top_p: TopP | None = None
    max_tokens: MaxTokens | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: TokenBiases | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Label = None
    # extensions, named as in vLLM
    top_k: TopKOrOff | None = Field(None, description="0 or -1: off")
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    ignore_eos: bool | None = None
    min_tokens: MinTokens | None = None
    truncate_prompt_tokens: TruncateTo | None = Field(None, description="keep only the prompt's last tokens")
    priority: Priority | None = None
    timeout_s: TimeoutS | None = Field(None, description=TIMEOUT_WORDS)
    policy: str | None = Field(None, description="a lane of this server (default: --default-policy)")


class CompletionBody(OpenAIOptions):
    """``/v1/completions``."""

    prompt: PromptField
    max_tokens: MaxTokensOrNone | None = Field(None, description="0: with echo, and no stream, the prompt alone")
    logprobs: Logprobs | None = Field(None, description="report the drawn token and this many of the likeliest")
    echo: bool | None = None
    suffix: Undone = None
    best_of: Undone = None


class ContentPart(Body):
    """A part of a message.  Only text is supported; the others are named so that they can be refused by name."""

    type: str
    text: str | None = None
    image_url: Undone = None
    input_audio: Undone = None
    file: Undone = None
    refusal: Undone = None


class Message(Body):
    """One message.  What OpenAI's own replies hold beside role and content is taken where it is empty."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[ContentPart], AtFirst()] | None = None
    name: str | None = None
    refusal: Undone = None
    annotations: Undone = None
    audio: Undone = None
    function_call: Undone = None
    tool_calls: Undone = None


class ChatBody(OpenAIOptions):
    """``/v1/chat/completions``."""

    messages: Annotated[list[Message], AtFirst(), BeforeValidator(check_num_parts)] = Field(
        min_length=1, max_length=MAX_MESSAGES
    )
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    metadata: Label = None
    response_format: Undone = None
    tools: Undone = None
    tool_choice: Undone = None
    parallel_tool_calls: Undone = None
    functions: Undone = None
    function_call: Undone = None
    modalities: Undone = None
    audio: Undone = None
    prediction: Undone = None
    reasoning_effort: Undone = None
    verbosity: Undone = None
    service_tier: Undone = None
    store: Undone = None
    web_search_options: Undone = None


# Field → values, beside null, that ask for nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "annotations": ([],),
    "tool_calls": ([],),
}


def refuse_undone(body: OpenAIOptions) -> None:
    """Raise :class:`UnsupportedOption` for the first field that asks for what isn't done."""
    for where, part in _parts(body):
        for name in _undone_fields(type(part)):
            value = getattr(part, name)
            is_neutral = value is None or value in NEUTRAL.get(name, ())
            if not is_neutral and not (name == "best_of" and value == (body.n or 1)):  # the best n of n are all
                raise UnsupportedOption(f"{where}{name} isn't supported by this server", param=where + name)


def _parts(body: OpenAIOptions) -> Iterator[tuple[str, Body]]:
    """The body and what it holds, each with its place."""
    yield "", body
    if not isinstance(body, ChatBody):
        return
    for m, message in enumerate(body.messages):
        yield f"messages.{m}.", message
        if isinstance(message.content, list):
            yield from ((f"messages.{m}.content.{p}.", part) for p, part in enumerate(message.content))


@functools.cache
def _undone_fields(kind: type[Body]) -> tuple[str, ...]:
    return tuple(name for name, field in kind.model_fields.items() if NotDone() in field.metadata)
