"""A model's tokenizer: prompts and chats to ids, ids to text and bytes.

Owns which text may become control tokens: a raw prompt's may, a chat message's never.  Ignorant of models.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as Backend

from everystep.architecture import TokenizerData
from everystep.errors import InvalidParameter, InvalidRequest, ModelError
from everystep.text.byte_level import bytes_of_token
from everystep.text.chat import ChatMessage, ChatTemplate, guard_controls


class Tokenizer:
    """Safe to use from several threads."""

    def __init__(self, data: TokenizerData) -> None:
        """Raises :class:`ModelError` if the data is no tokenizer."""
        self._data = data
        self._backend = _build(data.tokenizer_json)
        decoder = _decoder_type(data.tokenizer_json)
        self.is_byte_level = decoder == "ByteLevel"
        added = self._backend.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self.control_texts = tuple(sorted((added[i].content for i in self._special_ids), key=len, reverse=True))
        self.vocab_size: int = max(self._backend.get_vocab_size(with_added_tokens=True), max(added, default=-1) + 1)
        self.bos_token_id = data.bos_token_id if data.bos_token_id is not None else self._id_of(data.bos_token)
        named_end = self._id_of(data.eos_token)
        self.eos_token_ids = data.eos_token_ids or (() if named_end is None else (named_end,))

    # --- text to ids -----------------------------------------------------------------------------
    def encode_prompt(self, text: str) -> list[int]:
        """A raw prompt: control tokens in it are parsed, and it begins and ends as the model was trained to read."""
        add_bos, add_eos = self._data.add_bos, self._data.add_eos
        ids = self._encode(self._backend, text, add_special_tokens=add_bos is None)
        if add_bos and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        if add_bos is not None and add_eos and self.eos_token_ids:
            ids.append(self.eos_token_ids[0])
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Text of which nothing becomes a control token, and to which nothing is added."""
        return self._encode(self._literal_backend, text, add_special_tokens=False)

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_args: Any,
    ) -> list[int]:
        """Messages through the chat template, which alone places control tokens (and BOS).

        Raises :class:`InvalidRequest` where the model has no template, :class:`InvalidParameter` where the template
        refuses the messages.
        """
        if self._chat_template is None:
            raise InvalidRequest("the model has no chat template; use /v1/completions", param="messages")
        guard = guard_controls([*messages, *(tools or ())], self.control_texts)
        text = self._chat_template.render(
            [guard.apply(message) for message in messages],
            tools=[guard.apply(tool) for tool in tools] if tools else None,
            add_generation_prompt=add_generation_prompt,
            **template_args,
        )
        if not guard.is_needed:
            return self._encode(self._backend, text, add_special_tokens=False)
        ids: list[int] = []
        for piece in guard.split(text):
            ids += [self._control_id(piece.text)] if piece.is_control else self.encode_text(piece.text)
        return ids

    @property
    def has_chat_template(self) -> bool:
        return self._chat_template is not None

    # --- ids to text -----------------------------------------------------------------------------
    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The whole text of ``ids``; incomplete characters show as U+FFFD."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for, as bytes; of a token that is no whole character, its part."""
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        if self.is_byte_level:
            return bytes_of_token(token)
        byte = byte_of_fallback(token)
        return byte if byte is not None else token.replace("▁", " ").encode()

    def token_text(self, token_id: int) -> str:
        """The token's bytes as text; U+FFFD where it is no whole character."""
        return self.token_bytes(token_id).decode(errors="replace")

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def is_fallback_byte(self, token_id: int) -> bool:
        """Whether the token is a single byte of a tokenizer that falls back to bytes."""
        token = self._backend.id_to_token(token_id)
        return token is not None and not self.is_byte_level and byte_of_fallback(token) is not None

    # --- inside ----------------------------------------------------------------------------------
    @functools.cached_property
    def _literal_backend(self) -> Backend:
        """A second instance, since the switch is a state of the backend and the first is in use."""
        backend = _build(self._data.tokenizer_json)
        backend.encode_special_tokens = True  # "encode them as text"
        return backend

    @functools.cached_property
    def _chat_template(self) -> ChatTemplate | None:
        data = self._data
        if data.chat_template is None:
            return None
        names = {"bos_token": data.bos_token, "eos_token": data.eos_token, "unk_token": data.unk_token}
        return ChatTemplate(data.chat_template, {**names, "pad_token": data.pad_token})

    def _encode(self, backend: Backend, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"character {error.start} is {text[error.start]!r}"
            raise InvalidParameter(
                f"the text is no valid Unicode: {where}, a lone surrogate", param="prompt"
            ) from error
        return list(backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def _id_of(self, token: str | None) -> int | None:
        return None if token is None else self._backend.token_to_id(token)

    def _control_id(self, text: str) -> int:
        return int(self._backend.token_to_id(text))


def truncate_prompt(ids: Sequence[int], max_tokens: int) -> list[int]:
    """The last ``max_tokens`` ids: what a client asks for by ``truncate_prompt_tokens``."""
    if max_tokens < 1:
        raise InvalidParameter(
            f"truncate_prompt_tokens={max_tokens} must be at least 1", param="truncate_prompt_tokens"
        )
    return list(ids[-max_tokens:])


def byte_of_fallback(token: str) -> bytes | None:
    """``<0x0A>`` → its byte; ``None`` for every other token."""
    is_byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">")
    try:
        return bytes([int(token[3:5], 16)]) if is_byte else None
    except ValueError:
        return None


def _build(tokenizer_json: str) -> Backend:
    try:
        backend = Backend.from_str(tokenizer_json)
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"the tokenizer can't be built: {error}") from error
    backend.no_truncation()  # a prompt is never cut in silence, whatever the file says
    backend.no_padding()
    return backend


def _decoder_type(tokenizer_json: str) -> str | None:
    decoder = json.loads(tokenizer_json).get("decoder") or {}
    return str(decoder.get("type")) if isinstance(decoder, dict) else None
