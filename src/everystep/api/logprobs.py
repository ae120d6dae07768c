"""Log probabilities in OpenAI's two shapes: parallel lists for completions, one object a token for chats.

Owns how a token that is no whole character is written, and the offsets of tokens in the text.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from everystep.text import Tokenizer
from everystep.types import SampledToken

MIN_LOGPROB = -9999.0  # JSON has no infinity; OpenAI writes this


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[SampledToken]) -> dict[str, Any]:
    """``{"content": [{"token", "logprob", "bytes", "top_logprobs"}]}``."""
    return {"content": [_chat_token(tokenizer, token) for token in tokens]}


def _chat_token(tokenizer: Tokenizer, token: SampledToken) -> dict[str, Any]:
    top = [_chat_entry(tokenizer, other.token_id, other.logprob) for other in token.top]
    return {**_chat_entry(tokenizer, token.token_id, token.logprob), "top_logprobs": top}


def _chat_entry(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    data = tokenizer.token_bytes(token_id)
    return {"token": data.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(data)}


class CompletionLogprobs:
    """The lists of one choice, piece by piece, so that offsets go on from chunk to chunk."""

    def __init__(self, tokenizer: Tokenizer, begin: int = 0) -> None:
        """``begin`` is the length of an echoed prompt."""
        self._tokenizer = tokenizer
        self._offset = begin
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[SampledToken]) -> dict[str, Any]:
        """``{"tokens", "token_logprobs", "top_logprobs", "text_offset"}`` of these tokens."""
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": [self._advance(token.token_id) for token in tokens],
        }

    def _top(self, token: SampledToken) -> dict[str, float]:
        """The likeliest, and the drawn one if it isn't among them."""
        likeliest = {self._name(other.token_id): _finite(other.logprob) for other in reversed(token.top)}
        named = dict(reversed(likeliest.items()))  # of two tokens with one name the likelier stays
        return {**named, self._name(token.token_id): _finite(token.logprob)}

    def _advance(self, token_id: int) -> int:
        """Where the token's text begins; a part of a character begins where the character does."""
        offset = self._offset
        if not self._tokenizer.is_special(token_id):
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return offset

    def _name(self, token_id: int) -> str:
        r"""The token's text, or ``bytes:\xe2\x80`` where it is no text alone."""
        data = self._tokenizer.token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(logprob: float | None) -> float:
    return MIN_LOGPROB if logprob is None else max(MIN_LOGPROB, logprob)
