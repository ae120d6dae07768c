"""A model's tokenizer: prompts and chats to ids, ids to text and bytes.

Owns which text may become control tokens: a raw prompt's may, a chat message's never.  Ignorant of models.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from everystep.architecture import TokenizerData
from everystep.errors import InvalidParameter, InvalidRequest, ModelError
from everystep.text.backends import build_backends, encode_ids
from everystep.text.chat import ChatTemplate
from everystep.text.chat_messages import ChatMessage, plain_messages
from everystep.text.control_tokens import ControlTokens, Guard
from everystep.text.decoding import Stream, read_decoding

MAX_TOKEN_ID = 2**31 - 1
NOTHING: frozenset[int] = frozenset()
TEMPLATE_NAMES = frozenset({"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"})


class Tokenizer:
    """Safe to use from several threads."""

    def __init__(self, data: TokenizerData) -> None:
        """Raises :class:`ModelError` if the data is no tokenizer, or one whose decoder isn't known."""
        self._data = data
        try:
            self._build()
        except ModelError as error:
            raise ModelError(f"{data.source}: {error.message}") from error

    @classmethod
    def checked(cls, data: TokenizerData) -> Tokenizer:
        """For a server's start: the chat template, which is compiled when it is first needed, is compiled now."""
        tokenizer = cls(data)
        _ = tokenizer._chat_template
        return tokenizer

    def _build(self) -> None:
        data = self._data
        self._backends = build_backends(data)
        backend = self._backends.parsing
        decoder_json = None if backend.decoder is None else backend.decoder.__getstate__().decode()
        self._decoding = read_decoding(decoder_json, backend.id_to_token)
        last_added = max(self._backends.added, default=-1)
        self.vocab_size: int = max(backend.get_vocab_size(with_added_tokens=True), last_added + 1)
        self.bos_token_id = data.bos_token_id if data.bos_token_id is not None else self._id_of(data.bos_token)
        named_end = self._id_of(data.eos_token)
        self.eos_token_ids: tuple[int, ...] = data.eos_token_ids or (() if named_end is None else (named_end,))
        self._check_additions()

    # --- text to ids -----------------------------------------------------------------------------
    def encode_prompt(self, text: str) -> list[int]:
        """A raw prompt: control tokens in it are parsed, and it begins and ends as the model was trained to read."""
        add_bos, add_eos = self._data.add_bos, self._data.add_eos
        is_left_to_file = add_bos is None and add_eos is None
        ids = self._parse(_checked(text, "prompt"), add_special_tokens=is_left_to_file)
        if add_bos and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        if add_eos:
            ids.append(self.eos_token_ids[0])
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Text of which nothing becomes a control token, and to which nothing is added."""
        return self._backends.encode_literal(_checked(text, "text"), is_inner=False)

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **template_args: Any,
    ) -> list[int]:
        """Messages through the chat template, which alone places control tokens (and BOS).

        Raises :class:`InvalidRequest` where the model has no template, :class:`InvalidParameter` where the messages
        are none or the template refuses them.  ``now`` is what a template that writes today's date is told.
        """
        template = self._chat_template
        if template is None:
            raise InvalidRequest("the model has no chat template; use /v1/completions", param="messages")
        taken = sorted(TEMPLATE_NAMES & template_args.keys())
        if taken:
            raise InvalidParameter(f"{taken[0]!r} can't be given to the chat template", param="chat_template_kwargs")
        given = {"messages": plain_messages(messages), "tools": list(tools) if tools else None, **template_args}
        try:
            guard = Guard(self._controls, [given])
            guarded = {name: guard.apply(value) for name, value in given.items()}
        except RecursionError as error:
            raise InvalidParameter("messages or tools are nested too deeply", param="messages") from error
        text = template.render({**guarded, "add_generation_prompt": add_generation_prompt}, now=now)
        return self._encode_rendered(_checked(text, "messages"), guard)

    @property
    def has_chat_template(self) -> bool:
        return self._data.chat_template is not None

    # --- ids to text -----------------------------------------------------------------------------
    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The whole text of ``ids``; incomplete characters show as U+FFFD, ids without a token as nothing."""
        for token_id in ids:
            if not 0 <= token_id <= MAX_TOKEN_ID:
                raise InvalidParameter(f"token id {token_id} must be from 0 to {MAX_TOKEN_ID}", param="tokens")
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, *, skip_special: bool = True) -> Stream:
        """A text that grows by ids; see :class:`everystep.text.Detokenizer`."""
        return self._decoding.stream(self._backends.control_ids if skip_special else NOTHING)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token stands for inside a text, as bytes; of a token that is no whole character, its part."""
        return self._decoding.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """The token's bytes as text; U+FFFD where it is no whole character."""
        return self.token_bytes(token_id).decode(errors="replace")

    def is_special(self, token_id: int) -> bool:
        return token_id in self._backends.control_ids

    # --- inside ----------------------------------------------------------------------------------
    @functools.cached_property
    def max_token_bytes(self) -> int:
        """Of the longest token: no text has fewer tokens than its bytes divided by this."""
        return max(len(self.token_bytes(token_id)) for token_id in range(self.vocab_size))

    @functools.cached_property
    def _controls(self) -> ControlTokens:
        added = self._backends.added
        return ControlTokens({i: added[i] for i in self._backends.control_ids})

    @functools.cached_property
    def _chat_template(self) -> ChatTemplate | None:
        data = self._data
        if data.chat_template is None:
            return None
        names = {"bos_token": data.bos_token, "eos_token": data.eos_token, "unk_token": data.unk_token}
        try:
            return ChatTemplate(data.chat_template, {**names, "pad_token": data.pad_token})
        except ModelError as error:
            raise ModelError(f"{data.source}: {error.message}") from error

    @functools.cached_property
    def _finds_normalized(self) -> bool:
        """Whether the backend looks for a control token in normalised text, where the guard can't see it."""
        has_normalizer = self._backends.parsing.normalizer is not None
        added = self._backends.added
        return has_normalizer and any(added[i].normalized for i in self._backends.control_ids)

    def _encode_rendered(self, text: str, guard: Guard) -> list[int]:
        if not guard.is_used and not self._finds_normalized:
            return self._parse(text, add_special_tokens=False)
        ids: list[int] = []
        for segment in self._controls.cut(text, guard.mark):
            if segment.control_id is None:
                ids += self._backends.encode_literal(segment.text, is_inner=bool(ids))
            else:
                ids.append(segment.control_id)
        return ids

    def _parse(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return encode_ids(self._backends.parsing, text, add_special_tokens=add_special_tokens)

    def _id_of(self, token: str | None) -> int | None:
        return None if token is None else self._backends.parsing.token_to_id(token)

    def _check_additions(self) -> None:
        """What is to be put around each prompt must exist."""
        if self._data.add_bos and self.bos_token_id is None:
            raise ModelError("the tokenizer is to add a begin-of-text token but names none")
        if self._data.add_eos and not self.eos_token_ids:
            raise ModelError("the tokenizer is to add an end-of-text token but names none")


def truncate_prompt(ids: Sequence[int], max_tokens: int) -> list[int]:
    """The last ``max_tokens`` ids: what a client asks for by ``truncate_prompt_tokens``."""
    if not 1 <= max_tokens <= MAX_TOKEN_ID:
        raise InvalidParameter(
            f"truncate_prompt_tokens={max_tokens} must be from 1 to {MAX_TOKEN_ID}", param="truncate_prompt_tokens"
        )
    return list(ids[-max_tokens:])


def _checked(text: str, param: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"character {error.start} is {text[error.start]!r}"
        raise InvalidParameter(f"the text is no valid Unicode: {where}, a lone surrogate", param=param) from error
    return text
