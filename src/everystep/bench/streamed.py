"""A streamed completion, kept as bytes while it comes and read once it has ended.

Owns the reading of ``/v1/completions`` events into arrivals per prompt.  The client shares the machine with what it
measures, so during the pass it notes a time per block of bytes and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everystep.bench.passes import BenchFailed

EVENT_END = b"\n\n"
MAX_WORDS = 200


class ServerFailed(BenchFailed):
    """The server said within its stream that it can't go on."""


@dataclass
class Stream:
    """Blocks as they came, each with its arrival in seconds since the request was sent."""

    blocks: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, arrival_s: float, block: bytes) -> None:
        self.blocks.append((arrival_s, block))

    def events(self) -> list[tuple[float, bytes]]:
        """Whole events; one has arrived when the block that completes it has.  Lines may end as in HTTP or in Unix."""
        found, rest = [], b""
        for arrival_s, block in self.blocks:
            *whole, rest = (rest + block).replace(b"\r\n", b"\n").split(EVENT_END)
            found += [(arrival_s, event) for event in whole]
        if rest.strip():
            raise BenchFailed(f"the stream broke off within an event: {rest[:80]!r}")
        return found


@dataclass(frozen=True, slots=True)
class StreamedAnswers:
    arrivals_s: tuple[tuple[float, ...], ...]
    num_tokens: int
    num_prompt_tokens: int = 0


def read_answers(events: Sequence[tuple[float, bytes]], num_prompts: int) -> StreamedAnswers:
    """Arrivals by prompt, and the server's own count of tokens.  Raises :class:`BenchFailed` if it wasn't served.

    A chunk without text is an arrival only where it ends an answer: a last token may show none.
    """
    arrivals: list[list[float]] = [[] for _ in range(num_prompts)]
    finished: set[int] = set()
    usage: dict[str, Any] | None = None
    for arrival_s, event in events:
        chunk = _chunk(event)
        if chunk is None:
            continue
        for choice in chunk.get("choices") or ():
            index = choice.get("index", 0)
            if choice.get("finish_reason"):
                finished.add(index)
            if choice.get("text") or choice.get("finish_reason"):
                arrivals[index].append(arrival_s)
        usage = chunk.get("usage") or usage
    if usage is None or len(finished) != num_prompts:
        raise BenchFailed(f"the stream ended with {len(finished)} of {num_prompts} answers whole")
    num_prompt_tokens = int(usage.get("prompt_tokens") or 0)
    return StreamedAnswers(tuple(map(tuple, arrivals)), int(usage["completion_tokens"]), num_prompt_tokens)


def _chunk(event: bytes) -> dict[str, Any] | None:
    """The event's JSON; ``None`` for pings and the end mark."""
    lines = [line for line in event.splitlines() if line.startswith(b"data:")]
    if b"event: error" in event:
        raise ServerFailed(f"the server failed: {b' '.join(lines)[5:].decode(errors='replace').strip()}")
    if not lines or lines[0] == b"data: [DONE]":
        return None
    chunk: dict[str, Any] = json.loads(lines[0][len(b"data:") :])
    if "error" in chunk:  # as vLLM and SGLang say it
        raise ServerFailed(f"the server failed: {json.dumps(chunk['error'])[:MAX_WORDS]}")
    return chunk


def read_tokens(events: Sequence[tuple[float, bytes]]) -> tuple[float, ...]:
    """Arrivals of a native stream, whose every event is a piece of text."""
    chunks = [(arrival_s, _chunk(event)) for arrival_s, event in events]
    return tuple(arrival_s for arrival_s, chunk in chunks if chunk is not None)
