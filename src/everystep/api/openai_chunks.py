"""Streamed chunks of the OpenAI-compatible endpoints.

Owns their bytes.  A token's chunk is made of templates cut beforehand, and only what changes is encoded: with 64
streams this runs more than a thousand times a second beside the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from everystep.api.usage import Usage
from everystep.messages import Delta
from everystep.types import SampledToken

DONE = b"data: [DONE]\n\n"
Logprobs = Callable[[int, Sequence[SampledToken]], object]  # (index of the choice, its new tokens) → JSON value
encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Head:
    """What is equal in every chunk of a reply, and in its whole form."""

    reply_id: str
    kind: str  # "text_completion", "chat.completion", "chat.completion.chunk"
    created: int
    model: str

    def as_json(self) -> dict[str, object]:
        return {"id": self.reply_id, "object": self.kind, "created": self.created, "model": self.model}


class OpenAIChunks:
    """Deltas as chunks.  ``first`` is what a choice shows before its first text: a role, or the echoed prompt."""

    def __init__(
        self,
        head: Head,
        usage: Usage,
        *,
        content: tuple[bytes, bytes],
        first: Callable[[int], bytes],
        logprobs: Logprobs | None,
        is_usage_wanted: bool,
    ) -> None:
        """``content`` stands around a choice's text: ``"text":`` and nothing, or ``"delta":{"content":`` and ``}``."""
        fields = encode(head.as_json())[:-1]  # open at its end
        self._begin = b"data: " + fields + b',"choices":[{"index":'
        self._end = b'}],"usage":null}\n\n' if is_usage_wanted else b"}]}\n\n"
        self._usage_begin = b"data: " + fields + b',"choices":[],"usage":'
        self._content = content
        self._first = first
        self._logprobs = logprobs
        self._is_usage_wanted = is_usage_wanted
        self._usage = usage
        self._has_begun: set[int] = set()

    def of(self, delta: Delta) -> bytes:
        """Usually one chunk; none where there is nothing to show."""
        self._usage.count(delta.index, len(delta.tokens), delta.num_cached_tokens)
        first = b""
        if delta.index not in self._has_begun:
            self._has_begun.add(delta.index)
            if begin := self._first(delta.index):
                first = self._chunk(delta.index, begin, b"null", b"null")
        if not (delta.text or delta.finish_reason or (self._logprobs and delta.tokens)):
            return first
        before, behind = self._content
        logprobs = encode(self._logprobs(delta.index, delta.tokens)) if self._logprobs and delta.tokens else b"null"
        reason = b'"' + delta.finish_reason.value.encode() + b'"' if delta.finish_reason else b"null"
        return first + self._chunk(delta.index, before + encode(delta.text) + behind, logprobs, reason)

    def end(self) -> bytes:
        """The usage, if it was asked for, and OpenAI's own end mark."""
        if not self._is_usage_wanted:
            return DONE
        return self._usage_begin + encode(self._usage.as_json()) + b"}\n\n" + DONE

    def _chunk(self, index: int, content: bytes, logprobs: bytes, reason: bytes) -> bytes:
        parts = (self._begin, b"%d," % index, content, b',"logprobs":', logprobs, b',"finish_reason":', reason)
        return b"".join(parts) + self._end
