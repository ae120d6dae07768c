"""Two ways to ask for a streamed continuation: OpenAI's completions and everystep's own stream.

Owns the bodies and the reading of their events.  Greedy, and to the last token: an end of text is ignored where a
server can.  Ignorant of connections and clocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everystep.bench.passes import BenchFailed
from everystep.bench.streamed import Stream, StreamedAnswers, read_answers, read_tokens
from everystep.bench.words import text_of

TO_THE_LAST_TOKEN = {"ignore_eos": True}


@dataclass(frozen=True)
class Completions:
    """``/v1/completions``, as OpenAI, vLLM, SGLang, llama.cpp, TGI and OpenVINO Model Server have it."""

    model: str
    path: str = "/v1/completions"
    extras: Mapping[str, object] = field(default_factory=lambda: dict(TO_THE_LAST_TOKEN))  # beyond OpenAI's fields
    takes_token_ids: bool = True  # else a prompt is words, of about as many tokens

    def body(self, prompt: Sequence[int], output_tokens: int) -> bytes:
        sent = {
            "model": self.model,
            "prompt": list(prompt) if self.takes_token_ids else text_of(prompt),
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extras,
        }
        if "min_tokens" in sent:
            sent["min_tokens"] = output_tokens
        return json.dumps(sent).encode()

    def read(self, stream: Stream, output_tokens: int) -> StreamedAnswers:
        return read_answers(stream.events(), 1)


@dataclass(frozen=True)
class NativeStream:
    """``/generate_stream`` of an everystep server.  It takes text, and counts no tokens: the metrics do."""

    policy: str
    path: str = "/generate_stream"

    def body(self, prompt: Sequence[int], output_tokens: int) -> bytes:
        sent = {"prompt": text_of(prompt), "max_tokens": output_tokens, "ignore_eos": True, "policy": self.policy}
        return json.dumps(sent).encode()

    def read(self, stream: Stream, output_tokens: int) -> StreamedAnswers:
        """The stream's end is all that says an answer is whole.  Pieces may be fewer than tokens, never more."""
        times = read_tokens(stream.events())
        if not 1 <= len(times) <= output_tokens:
            raise BenchFailed(f"the stream ended with {len(times)} pieces of {output_tokens} tokens")
        return StreamedAnswers((times,), output_tokens)
