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


@dataclass
class Stream:
    """Blocks as they came, each with its arrival in seconds since the request was sent."""

    blocks: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, arrival_s: float, block: bytes) -> None:
        self.blocks.append((arrival_s, block))

    def events(self) -> list[tuple[float, bytes]]:
        """Whole events; one has arrived when the block that completes it has."""
        found, rest = [], b""
        for arrival_s, block in self.blocks:
            *whole, rest = (rest + block).split(EVENT_END)
            found += [(arrival_s, event) for event in whole]
        if rest.strip():
            raise BenchFailed(f"the stream broke off within an event: {rest[:80]!r}")
        return found


@dataclass(frozen=True, slots=True)
class StreamedAnswers:
    arrivals_s: tuple[tuple[float, ...], ...]
    num_tokens: int


def read_answers(events: Sequence[tuple[float, bytes]], num_prompts: int) -> StreamedAnswers:
    """Arrivals by prompt, and the server's own count of tokens.  Raises :class:`BenchFailed` if it wasn't served."""
    arrivals: list[list[float]] = [[] for _ in range(num_prompts)]
    finished: set[int] = set()
    num_tokens = None
    for arrival_s, event in events:
        chunk = _chunk(event)
        if chunk is None:
            continue
        for choice in chunk["choices"]:
            arrivals[choice["index"]].append(arrival_s)
            if choice["finish_reason"]:
                finished.add(choice["index"])
        if chunk.get("usage"):
            num_tokens = int(chunk["usage"]["completion_tokens"])
    if num_tokens is None or len(finished) != num_prompts:
        raise BenchFailed(f"the stream ended with {len(finished)} of {num_prompts} answers whole")
    return StreamedAnswers(tuple(map(tuple, arrivals)), num_tokens)


def _chunk(event: bytes) -> dict[str, Any] | None:
    """The event's JSON; ``None`` for pings and the end mark."""
    lines = [line for line in event.splitlines() if line.startswith(b"data:")]
    if b"event: error" in event:
        raise BenchFailed(f"the server failed: {b' '.join(lines)[5:].decode(errors='replace').strip()}")
    if not lines or lines[0] == b"data: [DONE]":
        return None
    return dict(json.loads(lines[0][len(b"data:") :]))
