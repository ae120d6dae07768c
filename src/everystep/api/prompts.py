"""The one place where prompts and messages become token ids.

Owns the forms a prompt may have, the check of a client's token ids, truncation by name, and that reading a long text
never holds up the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everystep.api.off_loop import LONG, off_loop_if_long
from everystep.api.openai_bodies import Message
from everystep.engine.client import EngineClient
from everystep.errors import InvalidParameter, InvalidRequest, PromptTooLong
from everystep.text import Tokenizer, flatten_content, truncate_prompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the engine takes it, and as text for clients who want it back (empty where it isn't at hand)."""

    ids: tuple[int, ...]
    text: str


async def read_texts(engine: EngineClient, texts: Sequence[str], truncate_to: int | None = None) -> list[Prompt]:
    """Raw texts, in which control tokens are parsed.  ``truncate_to`` keeps only the last ids."""
    _check_count(engine, len(texts))
    tokenizer = engine.tokenizer

    def read() -> list[Prompt]:
        return [_read_text(engine, tokenizer, text, truncate_to) for text in texts]

    return await off_loop_if_long(sum(map(len, texts)), read)


async def read_prompts(
    engine: EngineClient, value: object, truncate_to: int | None, *, wants_text: bool
) -> list[Prompt]:
    """``/v1/completions``'s ``prompt``: a text, texts, token ids, or lists of token ids."""
    if isinstance(value, str):
        return await read_texts(engine, [value], truncate_to)
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return await read_texts(engine, value, truncate_to)
        lists = value if all(isinstance(item, list) for item in value) else [value]
        _check_count(engine, len(lists))
        num_ids = sum(map(len, lists))
        return await off_loop_if_long(
            num_ids, lambda: [_read_ids(engine, ids, truncate_to, wants_text=wants_text) for ids in lists]
        )
    raise InvalidParameter("prompt must be a text, a list of texts, token ids, or lists of token ids", param="prompt")


async def read_chat(engine: EngineClient, messages: Sequence[Message], truncate_to: int | None) -> Prompt:
    """Messages through the model's template.  Always in a thread: the first call may compile it."""
    tokenizer, plain = engine.tokenizer, [_plain(message) for message in messages]
    now = datetime.fromtimestamp(engine.unix_s())  # some templates write the date
    num_chars = sum(len(message["content"]) for message in plain)

    def read() -> Prompt:
        if truncate_to is None and num_chars > LONG:
            _check_chars(num_chars, engine.max_model_len, tokenizer.max_token_bytes)
        return Prompt(_truncated(tokenizer.encode_chat(plain, now=now), truncate_to), text="")

    return await asyncio.to_thread(read)


def check_ids(ids: Sequence[object], vocab_size: int, param: str) -> None:
    """Raise :class:`InvalidParameter` for the first item that isn't a token id of this model."""
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise InvalidParameter(
                f"{param} holds {token_id!r:.40}; token ids are integers from 0 to {vocab_size - 1}", param=param
            )


def _read_text(engine: EngineClient, tokenizer: Tokenizer, text: str, truncate_to: int | None) -> Prompt:
    if truncate_to is None and len(text) > LONG:
        _check_chars(len(text), engine.max_model_len, tokenizer.max_token_bytes)
    ids = tokenizer.encode_prompt(text)
    kept = _truncated(ids, truncate_to)
    return Prompt(kept, text if len(kept) == len(ids) else tokenizer.decode(kept, skip_special=False))


def _check_chars(num_chars: int, max_model_len: int, max_token_bytes: int) -> None:
    """Refuse unread what no way of reading fits into the context: reading costs time and 200 bytes a character."""
    limit = max_model_len * max_token_bytes
    if num_chars > limit:
        raise PromptTooLong(
            f"the prompt has {num_chars} characters; {max_model_len} tokens of context hold at most {limit}",
            param="prompt",
        )


def _read_ids(engine: EngineClient, ids: list[Any], truncate_to: int | None, *, wants_text: bool) -> Prompt:
    kept = _truncated(ids, truncate_to)
    if len(kept) >= engine.max_model_len:  # before each is looked at: a body has room for millions
        raise PromptTooLong(
            f"the prompt has {len(kept)} tokens; the context holds {engine.max_model_len}, prompt and output",
            param="prompt",
        )
    check_ids(kept, engine.tokenizer.vocab_size, "prompt")
    return Prompt(kept, engine.tokenizer.decode(kept, skip_special=False) if wants_text else "")


def _truncated(ids: list[int], truncate_to: int | None) -> tuple[int, ...]:
    return tuple(ids if truncate_to is None else truncate_prompt(ids, truncate_to))


def _check_count(engine: EngineClient, num_prompts: int) -> None:
    """Before any is read; the door would refuse them all the same."""
    limit = engine.settings.max_queue
    if num_prompts > limit:
        raise InvalidRequest(f"{num_prompts} prompts; the line holds at most {limit} (--max-queue)", param="prompt")


def _plain(message: Message) -> dict[str, Any]:
    """A message as templates know it: text only, and the name they have for a developer."""
    role = "system" if message.role == "developer" else message.role
    content = message.content
    if content is None:
        raise InvalidParameter(f"a message of role {message.role!r} has no content", param="messages")
    text = content if isinstance(content, str) else flatten_content([part.model_dump() for part in content])
    named = {} if message.name is None else {"name": message.name}
    return {"role": role, "content": text, **named}
