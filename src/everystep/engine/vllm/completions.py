"""vLLM's ``/v1/completions`` as its client sees it: the body of a request, and events from the chunks of its stream.

Owns both forms.  Token ids cross both ways, so that text is made on our side, as in every lane.  Ignorant of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from everystep.engine.vllm.outputs import finish_reason
from everystep.engine.vllm.sampling import engine_params
from everystep.messages import FailureKind, Submit
from everystep.types import FinishReason, SampledToken, TokenEvent, TokenLogprob

DATA = "data: "
DONE = "[DONE]"
ID_MARK = "token_id:"  # how vLLM writes a token where it is asked for ids instead of text


class RemoteFailure(Exception):
    """The server says that it failed, or says what we can't use."""

    def __init__(self, words: str, kind: FailureKind = FailureKind.FAILED) -> None:
        super().__init__(words)
        self.kind = kind


class ChunkLogprobs(msgspec.Struct):
    """Lists by token."""

    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] = []


class ChunkChoice(msgspec.Struct):
    """What a chunk says of its one choice."""

    text: str = ""
    token_ids: list[int] | None = None
    logprobs: ChunkLogprobs | None = None
    finish_reason: str | None = None


class ErrorFields(msgspec.Struct):
    message: str = ""
    code: int | str | None = None


class Chunk(msgspec.Struct):
    """One event of the stream."""

    choices: list[ChunkChoice] = []
    error: ErrorFields | None = None


_decoder = msgspec.json.Decoder(Chunk)


def body_of(submit: Submit, model: str) -> dict[str, Any]:
    """Every parameter is named, so that no default of the server's or of the model's gets in."""
    params = engine_params(submit)
    biases = params.pop("logit_bias")
    return {
        **params,
        "model": model,
        "prompt": list(submit.prompt_ids),
        "logit_bias": None if biases is None else {str(token_id): bias for token_id, bias in biases.items()},
        "stream": True,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def read_line(line: str, sequence_id: str, num_top: int | None) -> tuple[TokenEvent, ...]:
    """Events of one line of the stream; none for blank lines, comments and its end.

    Raises :class:`RemoteFailure` for an error in the stream and for tokens without ids.
    """
    data = line.removeprefix(DATA)
    if data in (line, DONE):  # no data line, or the last one
        return ()
    try:
        chunk = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteFailure(f"it sent what isn't a chunk of a completion: {error}") from error
    if chunk.error is not None:
        is_ours = str(chunk.error.code) in ("400", "422")
        raise RemoteFailure(chunk.error.message, FailureKind.REFUSED if is_ours else FailureKind.FAILED)
    return tuple(event for choice in chunk.choices for event in _events(choice, sequence_id, num_top))


def failure_of(status: int, body: bytes) -> RemoteFailure:
    """What a reply that isn't 200 means for our client."""
    try:
        fields = msgspec.json.decode(body, type=Chunk).error
    except msgspec.MsgspecError:
        fields = None
    words = fields.message if fields and fields.message else body[:200].decode(errors="replace").strip()
    kind = {
        400: FailureKind.REFUSED,
        422: FailureKind.REFUSED,
        429: FailureKind.UNAVAILABLE,
        503: FailureKind.UNAVAILABLE,
    }.get(status, FailureKind.FAILED)
    return RemoteFailure(f"HTTP {status}: {words}", kind)


def _events(choice: ChunkChoice, sequence_id: str, num_top: int | None) -> list[TokenEvent]:
    if choice.token_ids is None and choice.text:
        raise RemoteFailure("it returns no token ids; vLLM does since return_token_ids came")
    reason = finish_reason(choice.finish_reason)
    error = f"vLLM ended it: {choice.finish_reason}" if reason is FinishReason.FAILED else None
    tokens = [_token(token_id, i, choice, num_top) for i, token_id in enumerate(choice.token_ids or ())]
    events = [TokenEvent(sequence_id, token) for token in tokens]
    if reason is not None:
        events[-1:] = [TokenEvent(sequence_id, tokens[-1] if tokens else None, reason, error)]
    return events


def _token(token_id: int, index: int, choice: ChunkChoice, num_top: int | None) -> SampledToken:
    if num_top is None or choice.logprobs is None:
        return SampledToken(token_id)
    top = _likeliest(choice.logprobs.top_logprobs[index], num_top) if num_top else ()
    return SampledToken(token_id, choice.logprobs.token_logprobs[index], top)


def _likeliest(entries: Mapping[str, float], num_top: int) -> tuple[TokenLogprob, ...]:
    """The server adds the drawn token where it isn't among them."""
    ranked = sorted(entries.items(), key=lambda entry: -entry[1])[:num_top]
    return tuple(TokenLogprob(int(name.removeprefix(ID_MARK)), logprob) for name, logprob in ranked)
